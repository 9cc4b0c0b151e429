// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/call.h"
#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/operations.h"
#include "runtime/bindings/torch/operators.h"

#include <array>
#include <optional>
#include <string>

namespace moejit::torch {
namespace {

constexpr std::size_t kMostInputs = 8;

// The sizes of a call, read from its inputs.
class CallSizes {
 public:
  // Throws if a dimension of the input exceeds its bound. The call itself checks the number of
  // dimensions and all other sizes.
  void read(const PlannedTensor& planned, const Tensor& tensor) {
    for (std::size_t i = 0; i < planned.shape.size(); ++i) {
      std::optional<int64_t>& size = told_[static_cast<std::size_t>(planned.call_dims[i])];
      const int64_t given = tensor.size(static_cast<int32_t>(i));
      if (!size && given >= 0) size = given;
      if (planned.call_dims[i] != CallDim::kNone && given > planned.shape[i])
        fail(MOEJIT_ERROR_TENSOR_MISMATCH,
             "tensor " + planned.name + ": dimension " + std::to_string(i) + " is " +
                 std::to_string(given) + ", wanted at most " + std::to_string(planned.shape[i]),
             "describe the operation with a larger bound");
    }
  }
  std::optional<int64_t> of(CallDim dim) const { return told_[static_cast<std::size_t>(dim)]; }
  // Returns T; P if the inputs have no T; C if they have neither.
  int64_t tokens() const {
    for (const CallDim dim : {CallDim::kTokens, CallDim::kRows, CallDim::kColumns})
      if (of(dim)) return *of(dim);
    return of(CallDim::kColumnBlocks).value_or(0) * 128;
  }

 private:
  std::array<std::optional<int64_t>, 5> told_;  // by CallDim; the entry of kNone means nothing
};

// Returns the shape of an output. Sizes that no input has are the most that the call may need.
std::array<int64_t, 4> shape_of(const ReadyOperation& ready, const PlannedTensor& planned,
                                const CallSizes& sizes) {
  std::array<int64_t, 4> shape{};
  for (std::size_t i = 0; i < planned.shape.size(); ++i) {
    const CallDim dim = planned.call_dims[i];
    const std::optional<int64_t> told = dim == CallDim::kNone ? planned.shape[i] : sizes.of(dim);
    if (told) {
      shape[i] = *told;
      continue;
    }
    moejit_tensor_place place{};
    place.struct_size = sizeof place;
    check(moejit_plan_get_tensor_place(ready.operation, planned.index, sizes.tokens(), &place));
    shape[i] = place.shape[i];
  }
  return shape;
}

Tensor make_output(const ReadyOperation& ready, const PlannedTensor& planned,
                   const CallSizes& sizes, DLDevice device) {
  const std::array<int64_t, 4> shape = shape_of(ready, planned, sizes);
  Tensor output({shape.data(), planned.shape.size()}, planned.dtype, device);
  if (planned.is_updated || fills_blocks(device)) clear(output, ready.device);
  return output;
}

// Throws if an operator with this many results cannot run the operation.
void check_fits(const ReadyOperation& ready, std::size_t outputs) {
  if (ready.inputs.size() <= kMostInputs && ready.outputs.size() == outputs) return;
  fail(MOEJIT_ERROR_UNSUPPORTED,
       "argument operation: it has " + std::to_string(ready.inputs.size()) + " inputs and " +
           std::to_string(ready.outputs.size()) + " outputs, wanted at most " +
           std::to_string(kMostInputs) + " and " + std::to_string(outputs),
       "call the overload for its outputs; moejit.Operation takes what none of them does");
}

template <std::size_t kOutputs>
void operation(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<kMostInputs> in(stack);
  in.describe(0, "of the first input");
  const DLDevice device = in.tensors()[0].device();
  const ReadyOperation& ready = ready_operation(in.text(), device);
  check_fits(ready, kOutputs);
  std::array<moejit_tensor, kMostInputs + kOutputs> tensors{};
  std::array<Tensor, kMostInputs> copies;
  std::size_t count = 0;
  CallSizes sizes;
  for (std::size_t i = 0; i < ready.inputs.size(); ++i) {
    const char* name = ready.inputs[i].name.c_str();
    if (i > 0) in.describe(i, name);
    sizes.read(ready.inputs[i], in.tensors()[i]);
    const Tensor& given = in.tensors()[i];
    if (given.needs_copy()) copies[i] = given.copy();
    tensors[count++] = {name, given.needs_copy() ? &copies[i].dl() : &given.dl()};
  }
  std::array<Tensor, kOutputs> outputs;
  for (std::size_t i = 0; i < kOutputs; ++i) {
    outputs[i] = make_output(ready, ready.outputs[i], sizes, device);
    tensors[count++] = {ready.outputs[i].name.c_str(), &outputs[i].dl()};
  }
  moejit_call call{};
  call.struct_size = sizeof call;
  call.tensors = tensors.data();
  call.tensor_count = count;
  call.stream = current_stream(device);
  check(moejit_operation_run(ready.operation, &call));
  for (std::size_t i = 0; i < kOutputs; ++i) stack[i] = outputs[i].release();
}

}  // namespace

#define MOEJIT_INPUTS                                                                     \
  "(Tensor in0, Tensor in1, Tensor in2, Tensor in3, Tensor in4, Tensor in5, Tensor in6, " \
  "Tensor in7, str operation) -> "

const std::array<Operator, 6> kOperationOperators = {{
    {"operation.outputs1", "operation.outputs1" MOEJIT_INPUTS "Tensor", operation<1>},
    {"operation.outputs2", "operation.outputs2" MOEJIT_INPUTS "(Tensor, Tensor)", operation<2>},
    {"operation.outputs3", "operation.outputs3" MOEJIT_INPUTS "(Tensor, Tensor, Tensor)",
     operation<3>},
    {"operation.outputs4", "operation.outputs4" MOEJIT_INPUTS "(Tensor, Tensor, Tensor, Tensor)",
     operation<4>},
    {"operation.outputs5",
     "operation.outputs5" MOEJIT_INPUTS "(Tensor, Tensor, Tensor, Tensor, Tensor)", operation<5>},
    {"operation.outputs6",
     "operation.outputs6" MOEJIT_INPUTS "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     operation<6>},
}};

#undef MOEJIT_INPUTS

}  // namespace moejit::torch
