// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"
#include "compiler/layer.h"
#include "compiler/target.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::compiler {

// ---------------------------------------------------------------------------------------------
// Tensors

// Who owns a tensor's memory and how long it lives.
enum class TensorRole {
  kInput,      // the caller's, read by calls: x, topk_ids, topk_probs; dy
  kWeight,     // the caller's, read when weights change: w1, w2; skip_update
  kQuantized,  // the caller's cache of quantised weights: w1_q, w1_scale_inv, ...
  kOutput,     // the caller's, written by calls: y; dx, dprobs, dw1, dw2
  kSaved,      // a slice of what the caller keeps from a forward to its backward call
  kWorkspace,  // a slice of the workspace handed to every call
};

// How the elements of a tensor lie in memory; part of the tensor's type, never inferred.
enum class Layout {
  kRowMajor,       // data, last dimension contiguous
  kScalesCompact,  // scale_inv [rows, ceil(columns / 128)], rows contiguous, no padding
  kScalesTiles,    // scale_inv [matrices, tile rows, tile columns], one per 128x128 tile
};

// One dimension: its size at run time is `value`, or for symbols that change per call (T) at most
// `value`. `symbol` is what listings show: "T", "K", "P", "ceil(H/128)", ...
struct Dim {
  std::string symbol;
  int64_t value = 0;
  bool operator==(const Dim&) const = default;
};

struct TensorPlan {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<Dim> shape;
  Layout layout = Layout::kRowMajor;
  TensorRole role = TensorRole::kWorkspace;
  bool is_optional = false;       // calls may leave it out; their kernels then get null
  int64_t bytes = 0;              // with every dimension at its bound
  int64_t workspace_offset = -1;  // of kWorkspace tensors, multiple of 256; -1 for the others
  int64_t saved_offset = -1;      // likewise of kSaved tensors
  int32_t first_use = -1;         // index into Plan::kernels of the first and last kernel that
  int32_t last_use = -1;          // touches it; workspace of disjoint lifetimes may overlap
  bool operator==(const TensorPlan&) const = default;
};

// ---------------------------------------------------------------------------------------------
// Kernels. A spec holds every compile-time choice of one kernel: it alone decides the emitted
// text. Device skeletons and stages of the same names live in templates/moejit_device.

struct RouteSpec {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 0;
  bool has_colwise_offs = false;  // also where groups of columns start, multiples of 128
  int32_t warps = 0;              // of a CTA
  bool operator==(const RouteSpec&) const = default;
};

enum class LoadStage {
  kRows,               // bf16 rows
  kQuantizedRows,      // e4m3 rows with their compact scales
  kGatedRows,          // bf16 rows of gate and up halves, and the row's probability
  kGatedGradientRows,  // those, and bf16 rows of the activation's gradient
  kUpRows,             // bf16 rows of up alone, and the row's probability
  kUpGradientRows,     // those, and bf16 rows of the activation's gradient
  kCombinedRows,       // fp32 sum of the permuted rows of a token, descending row order
};
enum class TransformStage {
  kIdentity,
  kActivationProbability,  // the activation of what was loaded, times probability
  kActivationBackward,     // from its gradient those of gate, if any, up and probability
};
enum class QuantizeStage {
  kNone,        // one rounding to bf16
  kKeep,        // as it was loaded: bytes and scales, or bf16
  k1x128,       // e4m3, one power-of-two scale per row and 128 columns
  k1x128Pairs,  // likewise, where columns 256i to 256i + 255 share a scale
};
enum class StoreStage {
  kRows,              // row r to row r
  kGroupedRows,       // row r to row r; rows past a group's count get data 0 and scale 0
  kGroupedGatedRows,  // likewise rows of gate and up halves, and a part of a sum of each segment
  kGroupedUpRows,     // likewise rows of up alone
  kPermuted,          // row t to every destination in row_map, and the pad rows
  kRowsAndPermuted,   // both: rows kept un-permuted too
  kRowsAndProbs,      // row r to row r, and the sums of the blocks of their dprobs
};

// A memory-bound chain over rows: load -> transform -> quantize -> store, 8 lanes per 128 columns.
struct RowChainSpec {
  LoadStage load = LoadStage::kRows;
  TransformStage transform = TransformStage::kIdentity;
  QuantizeStage quantize = QuantizeStage::k1x128;
  StoreStage store = StoreStage::kRows;
  int32_t columns = 0;        // of the output row, or of each half of a gated one
  int32_t local_experts = 0;  // where a stage needs groups
  int32_t top_k = 0;          // where a stage needs row_map
  float epsilon = 0.0f;       // smallest amax of the quantize stage
  bool moves_probs = true;    // a permuting store moves probabilities, and zeros rows without one
  bool tells_tokens = false;  // and writes down whose row each permuted one is
  int32_t threads = 256;
  int32_t segments_in_flight = 2;  // 128-column segments that a lane loads before it uses the first
  int32_t dprobs_columns = 0;      // kRowsAndProbs: blocks of a row's dprobs
  int32_t pitch = 0;               // kGroupedGatedRows: of a half of an output row, if not columns
  bool is_interleaved = false;     // gate and up alternate in bf16 rows that have both
  Activation activation = {};      // of the transform stage
  bool operator==(const RowChainSpec&) const = default;
};

// Whether the transform stage computes an activation or its gradients.
bool has_activation(const RowChainSpec& spec);

// Whether its rows leave in bf16, without scales.
bool stores_bf16(const RowChainSpec& spec);

// Quantises matrices in 128x128 tiles, one CTA per tile. Each matrix is `sections` stacked parts
// of `section_rows` rows; tiles restart at each part (gate and up of w1). `tiles_per_scale`
// neighbours in a row of tiles share their scale. With `writes_colwise` the same launch writes
// bytes and scales transposed too: the operand of dgrad, whose contraction runs along the rows.
// There each of several sections is filled up with zeros to a multiple of 128. Interleaved, the
// rows of the sections alternate in the input, and there alone.
struct TileChainSpec {
  int32_t sections = 1;
  int32_t section_rows = 0;
  int32_t columns = 0;
  int32_t tiles_per_scale = 1;
  float epsilon = 0.0f;
  bool writes_colwise = false;
  bool is_interleaved = false;
  int32_t threads = 256;  // 256 for each tile that shares a scale, where colwise is written
  bool operator==(const TileChainSpec&) const = default;
};

// What the scales of a grouped GEMM belong to. Those of blocks change along the contraction, so
// partial sums are multiplied with them; the others are applied once, at the end.
enum class GemmScales {
  kRowBlock,   // 1x128 scales of A, 128x128 of B whose blocks restart at each section
  kTensor,     // one of A, one of each group's B
  kRowColumn,  // one of each row of A, one of each column of D
  kNone,       // bf16 operands have none
};
// And those of a contraction-grouped one, whose contraction runs along the tokens.
enum class GradientScales {
  kTile,  // 128x128 scales of both operands, as the scaling-aware transpose leaves them
  kRow,   // 1x128 scales of the rows of both, as quantising each on its own leaves them
  kNone,  // bf16 operands have none, and are read as they lie: MN-major, a token a row
};
// Which dimension of an operand is contiguous: the contraction, or the other one.
enum class Major { kK, kMn };
// What becomes of a weight gradient.
enum class GradientOutput {
  kBf16,    // one rounding to bf16
  kF32,     // overwrites
  kF32Add,  // one fp32 addition to what is there
};
// How products are added up along the contraction.
enum class GemmAccumulation {
  kFp32,  // in fp32; of e4m3 products, which the tensor cores add with about 14 bits, partial sums
  kFast,  // e4m3 products by the tensor cores alone, over all of the contraction
};
enum class GemmEpilogue {
  kStoreBf16,                   // one rounding to bf16
  kActivationQuantize,          // that, then activation * probability to e4m3, 1x128 scales
  kStoreAndActivationQuantize,  // both are stored
};

// D[P, sections * section_n] = A[P, k] * B[e][sections * section_n, k]^T over groups of rows. A CTA
// computes `tile_rows` rows and, of the columns of a section, first `wide_tiles` times
// `wide_columns`, then `narrow_tiles` times `narrow_columns`. Swapped, for groups of few rows: rows
// of B are the m side of WGMMA, and all tiles are narrow. Gated, where the epilogue joins gate and
// up: a tile has the same columns of both sections, and all tiles are narrow.
struct GroupedGemmSpec {
  DType operands = DType::kF8E4M3;  // A and B
  GemmScales scales = GemmScales::kRowBlock;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;
  GemmEpilogue epilogue = GemmEpilogue::kStoreBf16;
  Major b_major = Major::kK;  // kMn, of bf16 alone: B[e] is [k, section_n]
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_n = 0;
  int32_t k = 0;
  int32_t wide_columns = 192, wide_tiles = 0;
  int32_t narrow_columns = 128, narrow_tiles = 0;
  bool is_swapped = false;
  int32_t tile_rows = 128;           // 16, 32 or 64 where swapped
  float epsilon = 0.0f;              // smallest amax of an epilogue that quantises
  int32_t stages = 4;                // of the shared-memory pipeline, 128 bytes of k each
  int32_t blocks_per_promotion = 1;  // stages that are one partial sum; 1 where gated
  Activation activation = {};        // of an epilogue that activates
  bool operator==(const GroupedGemmSpec&) const = default;
};

// Whether all products of an element of D are one sum of the tensor cores, so that nothing is
// promoted: of bf16 operands, and with fast accumulation.
bool is_one_chain(const GroupedGemmSpec& spec);

// What the epilogue stores: D, its activation Q [P, section_n], or both.
bool stores_result(const GroupedGemmSpec& spec);
bool stores_activation(const GroupedGemmSpec& spec);

// Sections of D whose same columns are in one tile: 2 where gated, else 1.
int32_t tile_sections(const GroupedGemmSpec& spec);

// D[e][rows, n] = A[rows, columns of e] * B[n, columns of e]^T over groups of columns: wgrad. Tiles
// as in GroupedGemmSpec, all of 128 rows. A tile leaves in panels of 128 bytes a row,
// `panels_staged` at a time; to add, `panels_loaded` of them bring their old values and L2 adds the
// others.
struct ContractionGroupedGemmSpec {
  GradientScales scales = GradientScales::kTile;
  GradientOutput output = GradientOutput::kF32;
  int32_t local_experts = 0;
  int32_t rows = 0;      // of A, in sections of whole tiles
  int32_t sections = 1;  // whose first section_rows rows are D's, where there are several
  int32_t section_rows = 0;
  bool is_interleaved = false;  // rows of the sections alternate in D
  int32_t n = 0;
  int32_t wide_columns = 192, wide_tiles = 0;
  int32_t narrow_columns = 128, narrow_tiles = 0;
  int32_t stages = 4;
  int32_t panels_staged = 3;
  int32_t panels_loaded = 0;
  bool operator==(const ContractionGroupedGemmSpec&) const = default;
};

DType operands_of(const ContractionGroupedGemmSpec& spec);

// Rows of D in each section.
int32_t result_rows(const ContractionGroupedGemmSpec& spec);

// How the scaling-aware transpose picks the scale of a tile and moves bytes to it.
enum class TransposeRule {
  kIdeal,       // the largest scale of a row that is not all zeros; rounds to nearest even
  kForkCompat,  // the largest of all; drops subnormals and keeps the mantissa of what underflows
};

// Where the rows come from that are transposed.
enum class RowSource {
  kInOrder,      // permuted, with their scales
  kGathered,     // those of tokens, by the permuted rows' row_tokens, which tell zeros too
  kGatheredAll,  // likewise, of a gradient: no row is made zeros
};

// q [P, columns] with compact power-of-two scales to [columns, Pc], each group's rows becoming
// columns that start at a multiple of 128, with one scale for each 128x128 tile: an operand of
// wgrad. No value is quantised twice: bytes are multiplied by powers of two.
struct TransposeSpec {
  DType format = DType::kF8E4M3;  // or kF8E5M2
  TransposeRule rule = TransposeRule::kIdeal;
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;          // of q, a multiple of 16
  bool counts_flushed = false;  // values that were not 0 and became 0
  int32_t band_tiles = 1;       // tiles of rows that are walked side by side
  int32_t threads = 128;        // 64 for each tile that a CTA holds
  bool operator==(const TransposeSpec&) const = default;
};

// A list of tensors [rows, columns], each with a scale known beforehand, to FP8 and to its
// transpose, and their largest magnitudes: delayed scaling. One 128x128 tile a CTA, of any tensor
// of the list.
struct MultiCastTransposeSpec {
  DType input = DType::kBF16;     // or kF32
  DType output = DType::kF8E4M3;  // or kF8E5M2
  int32_t threads = 256;
  bool operator==(const MultiCastTransposeSpec&) const = default;
};

using KernelSpec = std::variant<RouteSpec, RowChainSpec, TileChainSpec, GroupedGemmSpec,
                                ContractionGroupedGemmSpec, TransposeSpec, MultiCastTransposeSpec>;

// When a kernel runs.
enum class Phase {
  kWeights,  // once after the weights changed
  kForward,
  kBackward,
};

// What a backward call does with dw1 and dw2.
enum class GradientMode { kOverwrite, kAdd };

// `role` is the field of the kernel's parameter record (templates/moejit_device/params), `tensor`
// the name in Plan::tensors bound to it. Fields without an argument are null.
struct KernelArgument {
  std::string role;
  std::string tensor;
  bool operator==(const KernelArgument&) const = default;
};

// A tensor as tensor copies see it, and the box that one copy moves. Innermost dimension first;
// dimensions from `rank` on are unused.
struct TensorBox {
  DType dtype = DType::kU8;
  int32_t rank = 2;                               // 2, 3 or 4
  std::array<int64_t, 4> dims{1, 1, 1, 1};        // elements
  std::array<int64_t, 3> strides_bytes{0, 0, 0};  // of dimensions 1 to 3; multiples of 16
  std::array<int32_t, 4> box{1, 1, 1, 1};         // elements, at most 256 each
  bool is_swizzled = false;                       // rows of 128 bytes, 128-byte swizzle
  bool operator==(const TensorBox&) const = default;
};

// A tensor map in a kernel's parameter record: `role` is the field, `tensor` the name in
// Plan::tensors whose address it gets.
struct TensorMapPlan {
  std::string role;
  std::string tensor;
  TensorBox box;
  bool operator==(const TensorMapPlan&) const = default;
};

// How a kernel is launched. The number of CTAs follows from the tokens of a call (busy_ctas() in
// compiler/launch.h); persistent kernels take no more than the present device holds at once.
struct LaunchShape {
  int32_t threads = 0;
  int64_t max_ctas = 1;      // CTAs that the largest input keeps busy
  int32_t ctas_per_sm = 0;   // of persistent kernels, at most; 0: not persistent
  int32_t shared_bytes = 0;  // dynamic
  bool operator==(const LaunchShape&) const = default;
};

struct KernelPlan {
  std::string operation;  // "quantize", "route", "permute_pad", "gemm_fc1", ...
  Phase phase = Phase::kForward;
  std::optional<GradientMode> gradient_mode;  // launched by backward calls of this mode alone
  KernelSpec spec;
  LaunchShape launch;
  std::vector<KernelArgument> arguments;
  std::vector<TensorMapPlan> tensor_maps;
  int64_t min_bytes = 0;             // least traffic with every bound reached; design section 9
  int64_t multiply_adds = 0;         // likewise
  std::vector<std::string> reasons;  // a sentence for each choice
  bool operator==(const KernelPlan&) const = default;
};

struct Plan {
  Layer layer;
  Target target;
  std::vector<TensorPlan> tensors;
  std::vector<KernelPlan> kernels;  // in launch order: weights first, then forward, then backward
  int64_t workspace_bytes = 0;
  int64_t saved_bytes = 0;
  int64_t quantized_weight_bytes = 0;
  std::vector<std::string> reasons;  // choices of the whole layer
  bool operator==(const Plan&) const = default;
};

struct PlanOptions {
  // Every intermediate stays readable after a call: nothing shares workspace, and tensors that a
  // fused kernel would keep in registers are written too (x_q of quantize_permute_pad).
  bool keep_intermediates = false;
  // Grouped GEMMs tell how long they ran, and the caller gives each an output for it:
  // "<operation>_elapsed" I64 [2], SM clocks and nanoseconds. The kernels are the same.
  bool measure_gemms = false;
};

bool touches(const KernelPlan& kernel, std::string_view tensor);

// Whether a call of this phase touches a tensor.
bool is_used(const Plan& plan, const TensorPlan& tensor, Phase phase);

// A tensor of the plan by name, or null.
const TensorPlan* find_tensor(const Plan& plan, std::string_view name);

std::string_view to_string(TensorRole role);
std::string_view to_string(Layout layout);
std::string_view to_string(Phase phase);
std::string_view to_string(GradientMode mode);
std::string_view to_string(LoadStage stage);
std::string_view to_string(TransformStage stage);
std::string_view to_string(QuantizeStage stage);
std::string_view to_string(StoreStage stage);
std::string_view to_string(GemmScales scales);
std::string_view to_string(GemmAccumulation accumulation);
std::string_view to_string(GemmEpilogue epilogue);
std::string_view to_string(GradientScales scales);
std::string_view to_string(Major major);
std::string_view to_string(GradientOutput output);
std::string_view to_string(TransposeRule rule);
std::string_view to_string(RowSource source);

// The spec in one line of "name=value" words, stable: "row_chain load=rows quantize=1x128 ...".
std::string to_string(const KernelSpec& spec);

}  // namespace moejit::compiler
