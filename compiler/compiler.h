// SPDX-License-Identifier: Apache-2.0
// The compiler turns a layer description into machine code. No call here needs a GPU or a driver,
// and any thread may make any call at the same time as others.
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/launch.h"
#include "compiler/layer.h"
#include "compiler/operation.h"
#include "compiler/plan.h"
#include "compiler/router.h"
#include "compiler/support/error.h"
#include "compiler/work.h"

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Most bytes of the texts that the functions below read. The longest texts are published
// configurations that list the modules of a quantized model.
inline constexpr std::size_t kMaxDescriptionBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxConfigurationBytes = std::size_t{16} << 20;

// Reads a layer description (docs/layer-description.md). `source_name` is what errors call the
// text, usually its path. Errors carry line and column or JSON path; kInvalidValue also for a text
// of more than kMaxDescriptionBytes.
Result<Layer> parse_layer(std::string_view json, std::string_view source_name);

// What the caller decides about a layer from a published configuration.
struct HuggingFaceOptions {
  int32_t expert_parallel = 1;
  int64_t max_tokens = 8192;
  Recipe recipe = Recipe::kFp8Flow;
};
struct HuggingFaceLayer {
  Layer layer;  // without a router and shared experts
  // How the model chooses experts. The error of kUnsupported says why no formula expresses it.
  Result<RouterFormula> router;
  // Its shared experts, 0 if it has none. The error of kUnsupported says why the layer cannot have
  // them.
  Result<SharedExperts> shared;
  std::string model_type;
  std::vector<std::string> used_keys;  // "num_experts_per_tok -> top_k = 8"
  std::vector<std::string> notes;      // parts of the model that the description does not express
};
// Makes the description that a model's published configuration implies (config.json of Hugging Face
// repositories). `expert_parallel` ranks share the experts evenly. `used_keys` tells which keys
// were read and what each gave. Errors: as of parse_layer(), with the limit kMaxConfigurationBytes;
// kUnsupported for a model whose layer no description can express.
Result<HuggingFaceLayer> layer_from_hugging_face(std::string_view config_json,
                                                 std::string_view source_name,
                                                 const HuggingFaceOptions& options);

// Chooses operations, fusions, layouts, tiles and memory for a layer. Is pure: equal inputs give
// equal plans. For a layer with expert_parallel this is what one rank of its group runs; the
// options name the rank. First, choices and rows go to the ranks of their experts. Then the experts
// of this rank run; their tokens are the S = R * max_tokens slots of all ranks. Then the sums of a
// token's rows come home. Dispatch and combine are kernels among the others. Plans of all ranks are
// equal but for the numbers of ranks. Errors: a recipe, pass or size that the target cannot run, or
// a rank that the group does not have (kUnsupported).
Result<Plan> plan_layer(const Layer& layer, const Target& target, const PlanOptions& options = {});

// Plans an operation: the kernel that a layer gets for the same problem, and the caller's tensors.
// Is pure. Options for intermediates and GEMMs that measure do nothing. Errors: parts of the
// problem that do not go together (kUnsupported), and for a description that parse_operation() did
// not return its errors.
Result<Plan> plan_operation(const OperationDescription& operation, const Target& target,
                            const PlanOptions& options = {});

// Bytes that a layer with this recipe and recomputation saves from a forward to its backward pass.
struct SavedMemory {
  Recipe recipe = Recipe::kBf16;
  Recompute recompute = Recompute::kNone;
  int64_t bytes = 0;
};
// Returns what layers like the plan's layer save: with its recipe and with bf16, each without and
// with recomputation. Empty if the layer has no backward pass; combinations that the target cannot
// run are left out.
std::vector<SavedMemory> compare_saved_memory(const Plan& plan);

// Return the plan as text for people and as JSON. `explain` adds the reasons. Tables are `width`
// characters wide if their columns can be shortened; with 0 they are as wide as their text. The
// plan of a group's layer has a section about the group.
std::string print_plan(const Plan& plan, bool explain, int32_t width = 0);
std::string plan_to_json(const Plan& plan);

// Returns 32 hexadecimal digits over everything that decides the layout of the plan's blocks and
// tensors, and its kernels. These are the description without its name, the target, and the tensors
// with their offsets. They are also the specs, the headers of the kernels, and this version of
// moejit. Equal plans give equal digits in all processes and on all machines. A program that keeps
// memory or code made for a plan compares digests to tell whether another plan is the same.
std::string plan_digest(const Plan& plan);

// Returns the CUDA text of one kernel of a plan.
Result<KernelSource> emit_kernel(const KernelPlan& kernel, const Target& target);

// Returns what identifies everything beside the source that decides the bytes: compiler, version,
// build id, options, digests of the headers that the source includes. The fields are "name=value",
// ordered, and cached per process. NVRTC is not opened if its files tell enough. Errors:
// kCompilerMissing.
Result<std::vector<std::string>> toolchain_identity(const KernelSource& source);

// Returns the fields of an identity that name the compiler and its release, in order. The other
// fields follow from these, the source and this version of moejit.
std::vector<std::string> compiler_fields(const Target& target,
                                         std::span<const std::string> identity);

// Returns the identity of a source with a compiler that need not be on this machine, given by its
// compiler_fields(). None if `compiler` names no compiler of the source's target.
Result<std::optional<std::vector<std::string>>> toolchain_identity_with(
    const KernelSource& source, std::span<const std::string> compiler);

// Returns whether toolchain_identity() opens nothing for sources of this target: files tell all it
// needs, or the compiler is open already.
bool is_toolchain_at_hand(const Target& target);

// Returns, for people, the version of the compiler of a target's kernels and where it was found.
// Errors: kCompilerMissing.
Result<std::string> toolchain_description(const Target& target);

struct CompileOptions {
  // Stops the compile: when a stop is requested, NVRTC gives up at its next step with the error
  // kInterrupted. The host compiler runs to its end.
  std::stop_token stop;
  // The program `moejit`, as a path or a name on the PATH. NVRTC runs in a process of this program
  // that ends with the compile, so that a crash of NVRTC is an error. Empty: NVRTC runs in this
  // process.
  std::string worker;
  // Folder that gets the files to reproduce a failure (reproducer.h). Empty: nothing is written.
  std::string reproducer_dir;
};

// Compiles one kernel to machine code. NVRTC runs in this process or in a worker, the host compiler
// in a process of its own. Errors: kCompilerMissing (which library or program, where it was looked
// for). kCompileFailed (the log and the numbered source in `detail`), which the same source gets
// again. kCompilerFault if the compiler and not the source is to blame; kInterrupted. A kernel with
// a loss is no error here: it is slow, but a layer with it runs.
Result<CompiledKernel> compile_kernel_and_time(const KernelSource& source,
                                               const CompileOptions& options = {});

// Parts sources into units for compile_unit_and_time(), given by indices of `sources`: kernels that
// take less time together. A kernel of CUDA is a unit of its own. Units are small enough that
// `jobs` callers have work. The result depends on nothing but the arguments.
std::vector<std::vector<std::size_t>> compile_units(std::span<const KernelSource> sources,
                                                    int32_t jobs);
// Compiles the kernels of a unit. Returns for each what compile_kernel_and_time() would. But bytes
// depend on the other kernels of the unit too, and each kernel has an equal share of the unit's
// time.
std::vector<Result<CompiledKernel>> compile_unit_and_time(std::span<const KernelSource> sources,
                                                          const CompileOptions& options = {});

// Returns the field of a layer description that, if it is false, replaces the kernel of this entry
// by other kernels: "fuse_activation" for "moejit_gemm_fc1_activation_quantize_...". Empty for
// kernels that no field takes apart.
std::string_view field_that_fuses(std::string_view entry);

// Serves CompileOptions::worker in the program `moejit`. It reads one kernel from standard input,
// compiles it with NVRTC, and writes the machine code or the compiler's error to standard output.
// The process ends when `parent`, the process that asked, ends. Errors: only of reading and
// writing.
Result<void> serve_compile_worker(int parent);

}  // namespace moejit::compiler
