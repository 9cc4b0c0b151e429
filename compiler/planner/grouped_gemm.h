// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/planner/candidates.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Number of tiles that cover the columns of a section: wide ones first, then narrow ones.
struct ColumnTiles {
  int32_t wide = 0;
  int32_t narrow = 0;
  bool operator==(const ColumnTiles&) const = default;
};

// Returns the cover of `columns` (at least 1) by tiles of GroupedGemmSpec's widths that wastes the
// fewest columns. Among equal covers it is the one with the fewest tiles.
ColumnTiles choose_column_tiles(int64_t columns);

// Joins all sections into one if no scale block lies in two of them, and B is one tensor. Makes
// partial sums 128 products long unless scales are of blocks.
GroupedGemmSpec begin_spec(GroupedGemmSpec problem);

// Completes a spec whose problem is set and passes check_grouped_gemm() (operands, scales,
// accumulation, epilogue, local_experts, sections, section_n, k, and for scales of blocks
// blocks_per_promotion). Chooses the column tiles, and sets the length of partial sums unless
// scales are of blocks. Joins all sections into one if no scale block lies in two and the epilogue
// does not join gate and up. Short contractions get tiles of one width.
GroupedGemmSpec choose_tiles(GroupedGemmSpec problem);

// Tiles are swapped for at most this many mean rows per expert. Beyond it many groups need two
// swapped tiles, which read the weights twice (docs/performance/tried.md).
inline constexpr int64_t kMostSwappedRows = 32;

// Returns whether tiles may be swapped. They may not with an MN-major B, which stays the n side of
// WGMMA, nor where blocks of an activation share their scales.
bool may_be_swapped(const GroupedGemmSpec& problem);

// Returns whether tiles are swapped where experts have up to `most_rows` rows in the mean. Tiles
// of packed weights always are. So are tiles whose epilogue activates and stores bf16, or adds
// biases before it activates, or rounds an activation before it is quantized.
bool are_swapped(const GroupedGemmSpec& problem, const GroupRows& rows, int64_t most_rows);

// Completes a spec as choose_tiles() does, but with swapped tiles. They have as many rows as the
// largest group (1 or more), up to 128, or to 96 if an activation is quantized. They have as many
// stages as fit into shared memory. Larger groups give right results too, but slower. Only where
// may_be_swapped().
GroupedGemmSpec choose_swapped_tiles(GroupedGemmSpec problem, int64_t largest_group);

// A group with more rows than this many times the mean is not what tiles are chosen for.
inline constexpr int64_t kManyTimesMean = 4;

// Returns the rows of the largest group that swapped tiles are chosen for where CTAs share no A. It
// is 64 at least, or the most there can be. In bf16 it is 16 with up to 2 rows in the mean and 32
// at most.
int64_t usual_largest_group(const GroupedGemmSpec& problem, const GroupRows& rows);

// Completes a spec with the swapped tiles that are usual for groups of so many rows. Two CTAs may
// share an SM, or A.
GroupedGemmSpec choose_swapped_spec(const GroupedGemmSpec& problem, const GroupRows& rows);

// Completes a spec by choose_swapped_spec() for groups of few rows, if it may, else by
// choose_tiles(). Where contraction and groups are long it gets clusters of two CTAs.
GroupedGemmSpec choose_spec(const GroupedGemmSpec& problem, const GroupRows& rows);

// Says why CTAs run in clusters: row-grouped GEMMs and wgrad have the same reason.
inline constexpr std::string_view kClusterReason =
    "two CTAs with tiles below each other read each tile of B from L2 once for both: less energy, "
    "and less traffic where B is larger than L2";

inline constexpr std::string_view kSharedAReason =
    "two CTAs with tiles beside each other read each row of A from L2 once for both";

// Returns whether tiles are wide enough for clusters: narrow tiles only read more of A than sharing
// B spares.
bool gains_by_clusters(const GroupedGemmSpec& spec);

// Returns whether a spec of choose_tiles() may have the widest tiles instead.
bool may_be_widest(const GroupedGemmSpec& spec);

// Covers the columns of such a spec with the widest tiles and, where they end, with narrow ones.
GroupedGemmSpec with_widest_tiles(GroupedGemmSpec spec);

// Makes two CTAs share A, where may_share_a() says that they may.
GroupedGemmSpec with_shared_a(GroupedGemmSpec spec);

// Sets as many stages, but at most `most`, as fit into a CTA's shared memory.
GroupedGemmSpec with_stages(GroupedGemmSpec spec, int32_t most);

// Lets two CTAs of a spec with swapped tiles share an SM. A tile then has half of B's rows, and a
// CTA as many stages as fit. Only where may_share_sm().
GroupedGemmSpec with_shared_sm(GroupedGemmSpec spec);

// Returns sentences that explain the choices of choose_spec().
std::vector<std::string> tile_reasons(const GroupedGemmSpec& problem, const GroupedGemmSpec& spec);

// Names of tensors in a plan. A [P, k] and B [E, N, k] are operands; the epilogue stores D [P, N],
// its activation Q [P, section_n], or both. A, B and Q have scales. The factors `probs` [P] belong
// to Q's rows and to the bias [E, N].
struct GemmTensors {
  std::string a;
  std::string b;
  std::string d = {};
  std::string q = {};
  std::string a_scale_inv = {};
  std::string b_scale_inv = {};
  std::string q_scale_inv = {};
  std::string probs = {};
  std::string bias = {};
  std::string d_up = {};  // of wgrad, where D is gate's
  std::string b_up = {};  // where B is gate's
  std::string counts = "counts";
  std::string offs = "offs";
};

// Returns the box of `matrices` bf16 matrices [k, elements]: 64 elements by one step of the
// contraction.
TensorBox mn_major_box(int64_t elements, int64_t k, int64_t matrices);

// Returns the tensor maps of a grouped GEMM's parameter record; `rows` is P. `mean_rows` of a
// group say how B comes into L2; 0 is for groups of any size. Swapped tiles store D without a
// tensor map.
std::vector<TensorMapPlan> grouped_gemm_tensor_maps(const GroupedGemmSpec& spec, int64_t rows,
                                                    const GemmTensors& tensors,
                                                    int64_t mean_rows = 0);

// Returns a grouped GEMM of P = `rows` permuted rows in groups of the sizes in `groups`. It is
// complete except for operation, launch and work. The options' records name its tiles, or
// choose_spec() chooses them.
KernelPlan grouped_gemm_kernel(const GroupedGemmSpec& problem, int64_t rows,
                               const GroupRows& groups, const GemmTensors& tensors,
                               const Target& target, const PlanOptions& options);

// Plans one grouped GEMM without a layer, and chooses its tiles. It reads operands, is_a_e5m2,
// scales, accumulation, b_major, bias, local_experts, sections, section_n and k of `problem`, and
// for scales of blocks blocks_per_promotion. Tensors are "a", "b", "d", and others have the names
// of their arguments. Launch, numbers and work are for P = `rows`. Errors: parts of the problem
// that do not go together (kUnsupported).
Result<KernelPlan> plan_grouped_gemm(const GroupedGemmSpec& problem, int64_t rows,
                                     const Target& target = {}, const PlanOptions& options = {});

// Plans one contraction-grouped GEMM of C = `columns` columns, a multiple of 128, in the same way.
// It reads scales, output, accumulation, is_a_e5m2, has_bf16_operands, ends_groups, local_experts,
// rows and n.
Result<KernelPlan> plan_contraction_grouped_gemm(const ContractionGroupedGemmSpec& problem,
                                                 int64_t columns, const Target& target = {},
                                                 const PlanOptions& options = {});

// Returns whether groups of an operand's columns that start at multiples of `splits_alignment` may
// end within a step of the contraction.
bool ends_groups(const ContractionGroupedGemmSpec& problem, int32_t splits_alignment);

// Checks that operands, scales, accumulation and epilogue of a problem go together. Error
// kUnsupported: the message says which do not go together, the hint which do.
Result<void> check_grouped_gemm(const GroupedGemmSpec& problem);

// Times at which CTAs start, where they do not all start at once.
inline constexpr int32_t kStartTimes = 8;

// Completes a spec: chooses the column tiles and how tiles are stored. Its problem must be set:
// scales, output, local_experts, rows, n, and also sections and section_rows if A's rows are in
// several sections. `mean_columns`, the expected tokens of a group, affects speed only.
ContractionGroupedGemmSpec choose_tiles(ContractionGroupedGemmSpec problem, int64_t mean_columns);

// Returns sentences that explain the choices of choose_tiles().
std::vector<std::string> tile_reasons(const ContractionGroupedGemmSpec& spec, int64_t mean_columns);

// Returns the tensor maps of a contraction-grouped GEMM's parameter record. A is [columns / 128,
// rows, 128], B [columns / 128, n, 128] and D [E, rows, n]; `columns` is a multiple of 128. In bf16
// A is [columns, rows] and B [columns, n].
std::vector<TensorMapPlan> contraction_grouped_gemm_tensor_maps(
    const ContractionGroupedGemmSpec& spec, int64_t columns, const GemmTensors& tensors);

// Returns a contraction-grouped GEMM with its spec, tensor maps and the reasons for its choices.
// The options' records name the choices, or choose_tiles() makes them.
KernelPlan contraction_grouped_gemm_kernel(const ContractionGroupedGemmSpec& problem,
                                           int64_t columns, int64_t mean_columns,
                                           const GemmTensors& tensors, const Target& target,
                                           const PlanOptions& options);

}  // namespace moejit::compiler
