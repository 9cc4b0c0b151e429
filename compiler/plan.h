// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_bounds.h"
#include "compiler/call_plan.h"
#include "compiler/choices.h"
#include "compiler/dtype.h"
#include "compiler/group_memory.h"
#include "compiler/kernel_spec.h"
#include "compiler/layer.h"
#include "compiler/operation.h"
#include "compiler/target.h"
#include "compiler/tuning.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// ---------------------------------------------------------------------------------------------
// Tensors

// Owner and lifetime of a tensor's memory.
enum class TensorRole {
  kInput,       // the caller's, read by calls: x, topk_ids, topk_probs; dy
  kWeight,      // the caller's, read when weights change: w1, w2; b1, b2; skip_update
  kQuantized,   // the caller's cache of quantized weights: w1_q, w1_scale_inv, weights_digest, ...
  kDispatched,  // the caller's, written by quantize on one rank and read by experts on another: x_q
  kOutput,      // the caller's, written by calls: y; dx, dprobs, dw1, dw2, db1, db2
  kState,       // the caller's, read and written from step to step: fc1_amax_history, fc1_scale
  kSaved,       // a slice of the block that the caller keeps from a forward to its backward call
  kDeferred,    // a slice of the block that the caller keeps from one part of backward to the next
  kWorkspace,   // a slice of the workspace handed to every call
  kGroup,  // in the memory that a rank gives to its group: "slots_2" is in the memory of rank 2
};

// Order of a tensor's elements in memory; part of the tensor's type, never inferred.
enum class Layout {
  kRowMajor,        // data, last dimension contiguous
  kScalesCompact,   // scale_inv [rows, ceil(columns / 128)], rows contiguous, no padding
  kScalesTiles,     // scale_inv [matrices, tile rows, tile columns], one per 128x128 tile
  kScalesColumns,   // scale_inv [blocks of 128 tokens, columns], the scales of a block contiguous
  kScalesGroups,    // E8M0 [rows, 4 ceil(columns / 128)], or [blocks of 32 tokens, columns];
                    // E4M3 [rows, 8 ceil(columns / 128)], or [columns, blocks of 16 tokens]
  kScalesSwizzled,  // tiles of 128 rows by 4 scales in the order of Blackwell's GEMMs
};

// One dimension of a tensor. Its size at run time is `value`, or at most `value` for symbols that
// change per call (T, P, C). `symbol` is what listings show: "T", "K", "P", "ceil(H/128)", ...
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
  std::string scale_inv;     // name of the tensor with its scales, if it has any
  bool is_optional = false;  // whether calls may leave it out; their kernels then get null
  bool is_optional_in_backward = false;  // whether backward calls, but no others, may leave it out
  int64_t bytes = 0;                     // with every dimension at its bound, as for the offsets
  int64_t workspace_offset = -1;  // of kWorkspace tensors, multiple of 256; -1 for the others
  int64_t saved_offset = -1;      // of kSaved tensors, multiple of 256; -1 for the others
  int64_t deferred_offset = -1;   // of kDeferred tensors, multiple of 256; -1 for the others
  int64_t group_offset = -1;      // of kGroup tensors, multiple of 256; -1 for the others
  int32_t rank = -1;              // in whose memory kGroup tensors are; -1 for the others
  float first_value = 0.0f;       // of kState tensors: of all elements, before the first step
  // First and last kernel that touch the tensor, as indices into Plan::kernels. Workspace tensors
  // may overlap if no call uses them at the same time.
  int32_t first_use = -1;
  int32_t last_use = -1;
  bool operator==(const TensorPlan&) const = default;
};

// ---------------------------------------------------------------------------------------------
// Kernels

// An argument of a kernel. `role` is the field of the kernel's parameter record
// (templates/moejit_device/params), `tensor` the name in Plan::tensors that is bound to it. Fields
// without an argument are null.
struct KernelArgument {
  std::string role;
  std::string tensor;
  Access access = Access::kRead;
  bool operator==(const KernelArgument&) const = default;
};

// A tensor as tensor copies (TMA) see it, and the box that one copy moves. The innermost dimension
// is first; dimensions from `rank` on are unused. Elements may belong to several places.
struct TensorBox {
  DType dtype = DType::kU8;
  int32_t rank = 2;                               // 2, 3 or 4
  std::array<int64_t, 4> dims{1, 1, 1, 1};        // elements
  std::array<int64_t, 3> strides_bytes{0, 0, 0};  // of dimensions 1 to 3; multiples of 16
  std::array<int32_t, 4> box{1, 1, 1, 1};         // elements, at most 256 each
  bool is_swizzled = false;    // whether rows of 128 bytes have the 128-byte swizzle
  int32_t l2_promotion = 256;  // bytes that a miss brings into L2: 128 or 256
  // Index of the dimension whose size changes per call, the tensor's T, P or C; -1: none. `dims`
  // has its largest size.
  int32_t call_dim = -1;
  bool operator==(const TensorBox&) const = default;
};

// A tensor map in a kernel's parameter record. `role` is the field, `tensor` the name in
// Plan::tensors of the tensor whose address the map gets.
struct TensorMapPlan {
  std::string role;
  std::string tensor;
  TensorBox box;
  Access access = Access::kRead;
  bool operator==(const TensorMapPlan&) const = default;
};

// A number in a kernel's parameter record, in the field `role`. It is a dimension of the call, or
// `value` if `dim` is absent.
struct KernelNumber {
  std::string role;
  std::optional<CallDim> dim;
  int64_t value = 0;
  bool operator==(const KernelNumber&) const = default;
};

// How a kernel is launched. The number of CTAs follows from the tokens of a call (busy_ctas() in
// compiler/launch.h). Persistent kernels take no more CTAs than the present device holds at once.
struct LaunchShape {
  int32_t threads = 0;
  int64_t max_ctas = 1;      // CTAs that the largest input keeps busy
  int32_t ctas_per_sm = 0;   // limit for persistent kernels; 0: not persistent
  int32_t shared_bytes = 0;  // dynamic shared memory of a CTA
  int32_t cluster_ctas = 1;  // CTAs of a cluster; only whole clusters are launched
  // Threads of an SM to which a launch may be limited, since CTAs walk: a CTA that is done takes
  // the next tile. 0: CTAs do not walk; each has work of its own.
  int32_t walking_threads_per_sm = 0;
  // Whether the kernel may begin before the kernel before it in the call has ended, if both
  // overlap. It waits itself, and lets the kernel behind begin:
  // templates/moejit_device/ptx/overlap.cuh.
  bool overlaps = false;
  bool operator==(const LaunchShape&) const = default;
};

struct KernelPlan {
  std::string operation;  // "quantize", "route", "permute_pad", "gemm_fc1", ...
  // What listings say of the calls that launch it; Plan::calls has the calls. They are literals.
  std::string_view phase = "forward";  // or "weights", "backward", "forward_scales", ...
  std::string_view half;           // "data" or "weights", if the layer has backward_halves; "fc2"
                                   // or "fc1" with backward_linears
  std::string_view dispatch_call;  // "quantize" or "experts", if the layer has dispatch_calls
  std::string_view gradient_mode;  // "overwrite" or "add", if only calls of this mode launch it
  KernelSpec spec;
  CallBounds bounds;  // of the calls that launch the kernel
  // Whether the kernel's tokens are the slots of a group instead of the call's tokens. There are
  // bounds.max_tokens slots in every call.
  bool has_slots = false;
  LaunchShape launch;
  std::vector<KernelArgument> arguments;
  std::vector<TensorMapPlan> tensor_maps;
  std::vector<KernelNumber> numbers;
  int64_t min_bytes = 0;             // least traffic, with every bound reached; design section 9
  int64_t multiply_adds = 0;         // with every bound reached
  int64_t sent_bytes = 0;            // to other ranks of a group, in the mean; see Work
  std::vector<std::string> reasons;  // a sentence for each choice
  // `problem` names what the kernel computes; tuning records keep the fastest choices under this
  // name. `choices` are what was chosen for it. Both are empty for kernels that are not tuned.
  std::string problem;
  Choices choices;
  std::vector<Choices> candidates;  // all legal ones, the usual first, if PlanOptions asks for them
  bool operator==(const KernelPlan&) const = default;
};

// ---------------------------------------------------------------------------------------------
// What a transport moves between the ranks of a group

// Where blocks of bytes come from and go to, with R ranks. Tensors have as many bytes on all ranks,
// so no rank has to know how many tokens another rank has.
enum class Movement {
  kGather,    // every rank gets the [block] of each rank, as [R, block] by sender
  kExchange,  // part r of each rank's [R, block] goes to rank r, to [R, block] by sender
};

// A tensor that a collective step sends, and the tensor of the plan in which blocks arrive. Both
// lie in this rank's own memory.
struct BlockMove {
  Movement movement = Movement::kGather;
  std::string source;
  std::string destination;
  int64_t bytes = 0;  // of a block: what a rank sends to each other rank
  bool operator==(const BlockMove&) const = default;
};

// A step of a call that a transport does (runtime/transport.h) between two kernels; all ranks make
// it together. On the stream it runs after the kernels before it, and later kernels begin only when
// everything has arrived.
struct CollectivePlan {
  std::string operation;               // "gather_tokens", "exchange_results", ...
  std::string_view phase = "forward";  // as of kernels
  int32_t before = 0;                  // index into Plan::kernels of the kernel that follows
  std::vector<BlockMove> moves;
  std::vector<std::string> reasons;  // a sentence for each choice
  bool operator==(const CollectivePlan&) const = default;
};

// Returns the bytes that a rank sends to each other rank in a step.
int64_t block_bytes(const CollectivePlan& step);

// Everything needed to prepare and run a list of kernels, and what they were planned for: a layer
// or an operation.
struct Plan {
  std::optional<Layer> layer = {};
  std::optional<OperationDescription> operation = {};
  std::optional<GroupPlace> group = {};  // of a layer that the ranks of a group share
  std::string subject;                   // name in errors: "the layer tiny"
  Target target;
  CallBounds bounds;  // of the plan's calls
  std::vector<TensorPlan> tensors;
  // In launch order: weights first, then the scales of the next step, then forward, then backward.
  std::vector<KernelPlan> kernels;
  std::vector<CollectivePlan> collectives = {};  // in launch order; few layers of groups have any
  std::vector<CallPlan> calls = {};
  std::vector<AbsentCall> absent_calls = {};  // calls that other descriptions have
  int64_t workspace_bytes = 0;
  int64_t saved_bytes = 0;
  int64_t deferred_bytes = 0;
  int64_t quantized_weight_bytes = 0;
  std::vector<std::string> reasons;           // choices of the whole plan
  std::optional<GpuIdentity> tuned_for = {};  // the GPU of the records that the plan was made with
  bool operator==(const Plan&) const = default;
};

struct PlanOptions {
  // Whether every intermediate stays readable after a call. Then no tensors share workspace.
  // Tensors that a fused kernel would keep in registers are written too (x_q of
  // quantize_permute_pad).
  bool keep_intermediates = false;
  // Whether grouped GEMMs measure how long they run. The caller gives each GEMM an output for it:
  // "<operation>_elapsed" I64 [2], SM clocks and nanoseconds. The kernels are the same as without.
  bool measure_gemms = false;
  // The records that say what is fastest; null: the usual choices. They are read only while the
  // plan is made.
  const Tuning* tuning = nullptr;
  // Whether KernelPlan::candidates are listed.
  bool list_candidates = false;
  // Which rank's part of a group's layer is planned, and the longest time of each wait for a peer.
  // The kernels of all ranks are the same.
  int64_t rank = 0;
  int64_t timeout_ms = 10000;
};

// Return "layer" or "operation", and the name of the layer or operation.
std::string_view kind_of(const Plan& plan);
std::string name_of(const Plan& plan);
// Returns the description as JSON that parse_layer() or parse_operation() reads back.
std::string description_of(const Plan& plan);

bool touches(const KernelPlan& kernel, std::string_view tensor);

bool reads(const KernelPlan& kernel, std::string_view tensor);
bool writes(const KernelPlan& kernel, std::string_view tensor);

// Returns whether a kernel of the call touches a tensor, a caller's or one in a block.
bool touches(const Plan& plan, const CallPlan& call, std::string_view tensor);

// Returns the offset of a tensor in its block in a call over max_tokens tokens; -1 for tensors of
// callers.
int64_t block_offset(const TensorPlan& tensor);

// Returns whether callers have to fill a tensor with zeros before the first call. Only
// weights_digest needs it: its zeros say that no update has seen the weights.
bool begins_as_zeros(const TensorPlan& tensor);

// Returns a tensor of the plan by name, or null.
const TensorPlan* find_tensor(const Plan& plan, std::string_view name);

// Returns the index of a call in Plan::calls. Error kUnsupported: the plan has no such call. The
// error says what the description lacks, or names the plan's calls.
Result<std::size_t> find_call(const Plan& plan, std::string_view name);

// Returns the index of the first call that runs the kernel; of no call: Plan::calls.size().
std::size_t call_of_kernel(const Plan& plan, std::size_t kernel);

// Returns whether the plan has a call of this name whose kernels touch the caller's tensor.
bool call_takes(const Plan& plan, std::string_view call, std::string_view tensor);

// Returns a hint for a tensor that came with the dtype `got` instead of the plan's dtype. The hint
// names the field of a description that plans the tensor with `got`. It is empty if there is no
// such field.
std::string dtype_hint(std::string_view tensor, DType got);

// Returns whether callers give tensors of this role to each call. Other tensors lie in a slice of a
// block or in the memory of a group.
bool is_callers(TensorRole role);

std::string_view to_string(Movement movement);
std::string_view to_string(TensorRole role);
std::string_view to_string(Layout layout);

}  // namespace moejit::compiler
