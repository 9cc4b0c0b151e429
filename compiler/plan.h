// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_bounds.h"
#include "compiler/dtype.h"
#include "compiler/kernel_spec.h"
#include "compiler/layer.h"
#include "compiler/target.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// ---------------------------------------------------------------------------------------------
// Tensors

// Who owns a tensor's memory and how long it lives.
enum class TensorRole {
  kInput,       // the caller's, read by calls: x, topk_ids, topk_probs; dy
  kWeight,      // the caller's, read when weights change: w1, w2; b1, b2; skip_update
  kQuantized,   // the caller's cache of quantised weights: w1_q, w1_scale_inv, ...
  kDispatched,  // the caller's, written by quantize on one rank and read by experts on another: x_q
  kOutput,      // the caller's, written by calls: y; dx, dprobs, dw1, dw2, db1, db2
  kSaved,       // a slice of what the caller keeps from a forward to its backward call
  kDeferred,    // a slice of what the caller keeps from a backward call's data half to its other
  kWorkspace,   // a slice of the workspace handed to every call
};

// How the elements of a tensor lie in memory; part of the tensor's type, never inferred.
enum class Layout {
  kRowMajor,       // data, last dimension contiguous
  kScalesCompact,  // scale_inv [rows, ceil(columns / 128)], rows contiguous, no padding
  kScalesTiles,    // scale_inv [matrices, tile rows, tile columns], one per 128x128 tile
};

// One dimension: its size at run time is `value`, or for symbols that change per call (T, P, C) at
// most `value`. `symbol` is what listings show: "T", "K", "P", "ceil(H/128)", ...
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
  bool is_optional = false;              // calls may leave it out; their kernels then get null
  bool is_optional_in_backward = false;  // likewise backward calls, but not the others
  int64_t bytes = 0;                     // with every dimension at its bound, as offsets are
  int64_t workspace_offset = -1;  // of kWorkspace tensors, multiple of 256; -1 for the others
  int64_t saved_offset = -1;      // likewise of kSaved tensors
  int64_t deferred_offset = -1;   // likewise of kDeferred tensors
  int32_t first_use = -1;         // index into Plan::kernels of the first and last kernel that
  int32_t last_use = -1;  // touches it; workspace that no phase has in use together may overlap
  bool operator==(const TensorPlan&) const = default;
};

// ---------------------------------------------------------------------------------------------
// Kernels

// When a kernel runs.
enum class Phase {
  kWeights,  // once after the weights changed
  kForward,
  kBackward,
};

// The halves of the backward pass of layers with backward_halves, in this order. The data half
// gives dx and dprobs, the weights half the gradients of weights and biases.
enum class BackwardHalf { kData, kWeights };

// The calls of a pass of layers with dispatch_calls, in this order. The host moves the rows that
// the one leaves to the ranks whose experts they go to, where the other takes them.
enum class DispatchCall { kQuantize, kExperts };

// What a backward call does with the gradients of weights and biases.
enum class GradientMode { kOverwrite, kAdd };

// Tells what a kernel does with a tensor.
enum class Access { kRead, kWrite, kReadWrite };

// `role` is the field of the kernel's parameter record (templates/moejit_device/params), `tensor`
// the name in Plan::tensors bound to it. Fields without an argument are null.
struct KernelArgument {
  std::string role;
  std::string tensor;
  Access access = Access::kRead;
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
  // The dimension that is the tensor's T, P or C, as large as that is in a call; -1: none. `dims`
  // has the largest.
  int32_t call_dim = -1;
  bool operator==(const TensorBox&) const = default;
};

// A tensor map in a kernel's parameter record: `role` is the field, `tensor` the name in
// Plan::tensors whose address it gets.
struct TensorMapPlan {
  std::string role;
  std::string tensor;
  TensorBox box;
  Access access = Access::kRead;
  bool operator==(const TensorMapPlan&) const = default;
};

// A number of a kernel's parameter record: `role` is its field. It is a dimension of the call, or
// else `value`.
struct KernelNumber {
  std::string role;
  std::optional<CallDim> dim;
  int64_t value = 0;
  bool operator==(const KernelNumber&) const = default;
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
  std::optional<BackwardHalf> half = {};           // of kBackward, where the layer has halves
  std::optional<DispatchCall> dispatch_call = {};  // where the layer has dispatch_calls
  std::optional<GradientMode> gradient_mode;       // launched by backward calls of this mode alone
  KernelSpec spec;
  CallBounds bounds;  // of the calls that launch it
  LaunchShape launch;
  std::vector<KernelArgument> arguments;
  std::vector<TensorMapPlan> tensor_maps;
  std::vector<KernelNumber> numbers;
  int64_t min_bytes = 0;             // least traffic with every bound reached; design section 9
  int64_t multiply_adds = 0;         // likewise
  std::vector<std::string> reasons;  // a sentence for each choice
  bool operator==(const KernelPlan&) const = default;
};

// What preparing and running a list of kernels takes.
struct Plan {
  std::string subject;  // what errors call it: "the layer tiny", "the operation quantize"
  Target target;
  CallBounds bounds;  // of its calls
  std::vector<TensorPlan> tensors;
  std::vector<KernelPlan> kernels;  // in launch order: weights first, then forward, then backward
  int64_t workspace_bytes = 0;
  int64_t saved_bytes = 0;
  int64_t deferred_bytes = 0;
  int64_t quantized_weight_bytes = 0;
  std::vector<std::string> reasons;  // choices of the whole plan
  bool operator==(const Plan&) const = default;
};

// A plan that was made for a layer.
struct LayerPlan : Plan {
  Layer layer;
  bool operator==(const LayerPlan&) const = default;
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

bool reads(Access access);
bool reads(const KernelPlan& kernel, std::string_view tensor);
bool writes(Access access);
bool writes(const KernelPlan& kernel, std::string_view tensor);

// What a call runs: a phase, or the part of it that is given.
struct CallPart {
  Phase phase = Phase::kForward;
  std::optional<BackwardHalf> half = {};
  std::optional<DispatchCall> dispatch_call = {};
  bool operator==(const CallPart&) const = default;
};

// Whether a call of this part launches the kernel.
bool is_of_part(const KernelPlan& kernel, const CallPart& part);

// Whether a call of this part touches a tensor.
bool is_used(const Plan& plan, const TensorPlan& tensor, const CallPart& part);

// Whether a call of this half takes a tensor for its shape alone: the weights half takes dy, which
// its kernels need not read, since something has to tell T.
bool is_used_for_shape(const Plan& plan, const TensorPlan& tensor,
                       std::optional<BackwardHalf> half);

// Where a tensor lies in its block in a call over max_tokens tokens; -1: it is the caller's.
int64_t block_offset(const TensorPlan& tensor);

// Whether a call of this phase may leave a tensor out.
bool is_optional(const TensorPlan& tensor, Phase phase);

// A tensor of the plan by name, or null.
const TensorPlan* find_tensor(const Plan& plan, std::string_view name);

// What to do about a tensor of this name that came with another dtype than the plan's: the field of
// a description that plans it with this one. Empty where there is none.
std::string dtype_hint(std::string_view tensor, DType got);

// Whether tensors of this role have memory of the caller's, rather than a slice of a block.
bool is_callers(TensorRole role);

std::string_view to_string(TensorRole role);
std::string_view to_string(Layout layout);
std::string_view to_string(Phase phase);
std::string_view to_string(BackwardHalf half);
std::string_view to_string(DispatchCall call);
std::string_view to_string(GradientMode mode);

}  // namespace moejit::compiler
