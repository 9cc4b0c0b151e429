// SPDX-License-Identifier: Apache-2.0
#pragma once

// The compiler: layer description in, machine code out. No call here needs a GPU or a driver, and
// all of them may be called from any thread at the same time.

#include "compiler/compile_time.h"
#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/launch.h"
#include "compiler/layer.h"
#include "compiler/plan.h"
#include "compiler/work.h"

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Bytes of the texts that the functions below read. Published configurations that list modules of a
// quantised model are the longest.
inline constexpr std::size_t kMaxDescriptionBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxConfigurationBytes = std::size_t{16} << 20;

// Reads a layer description (docs/layer-description.md). `source_name` is what errors call the
// text, usually its path. Errors carry line and column or JSON path; kInvalidValue for a text of
// more than kMaxDescriptionBytes.
Result<Layer> parse_layer(std::string_view json, std::string_view source_name);

// Makes the description that a model's published configuration implies (config.json of Hugging
// Face repositories). `expert_parallel` ranks share the experts evenly. `used_keys` tells which
// keys were read and what each gave. Errors: as above, kInvalidValue also for a text of more than
// kMaxConfigurationBytes; kUnsupported for a model whose layer no description can say.
struct HuggingFaceOptions {
  int32_t expert_parallel = 1;
  int64_t max_tokens = 8192;
  Recipe recipe = Recipe::kFp8Flow;
};
struct HuggingFaceLayer {
  Layer layer;
  std::string model_type;
  std::vector<std::string> used_keys;  // "num_experts_per_tok -> top_k = 8"
  std::vector<std::string> notes;      // parts of the model that the description does not express
};
Result<HuggingFaceLayer> layer_from_hugging_face(std::string_view config_json,
                                                 std::string_view source_name,
                                                 const HuggingFaceOptions& options);

// Chooses operations, fusions, layouts, tiles and memory for a layer. Pure: equal inputs give
// equal plans. Errors: a recipe, pass or size that the target cannot run (kUnsupported).
Result<LayerPlan> plan_layer(const Layer& layer, const Target& target,
                             const PlanOptions& options = {});

// Plans one grouped GEMM without a layer: the kernel that a layer gets for the same problem
// (operands, scales, accumulation, local_experts, sections, section_n, k, and with scales of blocks
// blocks_per_promotion; tiles are chosen here). `rows` is P. Arguments and tensor maps are those of
// params/grouped_gemm_params.h, bound to tensors "a", "b", "d" and of the arguments' own names.
// Launch, numbers and work are for P rows. Errors: parts of the problem that do not go together
// (kUnsupported).
Result<KernelPlan> plan_grouped_gemm(const GroupedGemmSpec& problem, int64_t rows);

// Does the same for one contraction-grouped GEMM (scales, output, local_experts, rows, n; tiles are
// chosen here) of C = `columns` columns, a multiple of 128, and its parameter record in
// params/contraction_grouped_gemm_params.h.
KernelPlan plan_contraction_grouped_gemm(const ContractionGroupedGemmSpec& problem,
                                         int64_t columns);

// Plans one multi-cast-transpose without a layer, of tensors of these sizes. Its arguments are the
// pointers of params/multi_cast_transpose_params.h, bound to tensors of their own names;
// `tile_ends` is cast_transpose_tile_ends(sizes) (compiler/launch.h). The kernel is the same for
// any list: launch it with as many CTAs as the list has tiles. Errors: formats that it does not
// cast (kUnsupported).
Result<KernelPlan> plan_multi_cast_transpose(const MultiCastTransposeSpec& problem,
                                             std::span<const MatrixSize> sizes);

// Plans one scaling-aware transpose without a layer: the kernel that a layer gets for the same
// problem (format, rule, source, local_experts, columns), and others: E5M2, the rule kForkCompat,
// and with counts_flushed a counter of values that became 0. `rows` is P, `output_columns` Pc. Its
// arguments are the pointers of params/transpose_params.h, bound to tensors of their own names.
// Launch and work are for P rows, of as many tokens. Errors: parts of the problem that it cannot do
// (kUnsupported).
Result<KernelPlan> plan_transpose(const TransposeSpec& problem, int64_t rows,
                                  int64_t output_columns);

// What layers like this one would save from a forward to its backward pass: with the plan's recipe
// and with bf16, without and with recomputation. Empty without a backward pass; what the target
// cannot run is left out.
struct SavedMemory {
  Recipe recipe = Recipe::kBf16;
  Recompute recompute = Recompute::kNone;
  int64_t bytes = 0;
};
std::vector<SavedMemory> compare_saved_memory(const LayerPlan& plan);

// The plan as text for people (`explain` adds the reasons) or JSON for tools. Tables of the text
// are `width` characters wide where their columns can be shortened; 0: as wide as they are.
std::string print_plan(const LayerPlan& plan, bool explain, int32_t width = 0);
std::string plan_to_json(const LayerPlan& plan);

// 32 hexadecimal digits over what decides the layout of the plan's blocks and tensors, and its
// kernels: the description without its name, target, tensors with their offsets, specs, headers of
// kernels, and this version of moejit. Equal in all processes and on all machines. Who keeps memory
// or code that was made for a plan tells by it whether another plan is the same.
std::string plan_digest(const LayerPlan& plan);

// CUDA text of one kernel of a plan.
Result<KernelSource> emit_kernel(const KernelPlan& kernel, const Target& target);

// Identity of everything beside the source that decides the bytes: compiler, version, build id,
// options, digests of the headers that the source includes. Ordered "name=value" fields; cached
// per process. NVRTC is not opened for it where its files tell. Errors: kCompilerMissing.
Result<std::vector<std::string>> toolchain_identity(const KernelSource& source);

// The fields of an identity that name the compiler and its release, in order; the others follow
// from these, the source and this version of moejit.
std::vector<std::string> compiler_fields(const Target& target,
                                         std::span<const std::string> identity);

// The identity of a source with a compiler that need not be on this machine, told by its
// compiler_fields(). None where they are no compiler of the source's target.
Result<std::optional<std::vector<std::string>>> toolchain_identity_with(
    const KernelSource& source, std::span<const std::string> compiler);

// Whether toolchain_identity() of a target's sources opens nothing: what it tells is in files, or
// the compiler is open already.
bool is_toolchain_at_hand(const Target& target);

// The compiler that a target's kernels are made with, for people: version and where it was found.
// Errors: kCompilerMissing.
Result<std::string> toolchain_description(const Target& target);

struct CompileOptions {
  // Once it asks, NVRTC gives up at its next step, and the error is kInterrupted; the host compiler
  // goes on to its end.
  std::stop_token stop;
  // The program `moejit`, as a path or a name on the PATH: NVRTC runs in a process of it that ends
  // with the compile, so that its crash is an error. Empty: in this process.
  std::string worker;
  // Gets a folder with what reproduces a failure (reproducer.h). Empty: nothing is written.
  std::string reproducer_dir;
};

// Machine code of one kernel. NVRTC runs in this process, the host compiler outside of it.
// Errors: kCompilerMissing (which library or program, where it was looked for); kCompileFailed (the
// log and the numbered source in `detail`), which the same source gets again; kCompilerFault where
// the compiler and not the source is to blame; kInterrupted. A kernel with a loss is no error here:
// it is slow, but a layer that has it runs.
Result<CompiledKernel> compile_kernel_and_time(const KernelSource& source,
                                               const CompileOptions& options = {});

// The machine code alone, for who writes kernels: one with a loss is the error kCompileFailed.
Result<KernelBinary> compile_kernel(const KernelSource& source);

}  // namespace moejit::compiler
