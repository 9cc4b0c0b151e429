// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/moejit_operation.h"
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
constexpr std::size_t kMostOutputs = 6;

// The sizes that a call's inputs tell.
class CallSizes {
 public:
  // Throws if the input has more than calls may have. A wrong number of dimensions and all other
  // sizes are left to the call.
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
  // Returns T, or where the inputs have none P or C.
  int64_t tokens() const {
    for (const CallDim dim : {CallDim::kTokens, CallDim::kRows, CallDim::kColumns})
      if (of(dim)) return *of(dim);
    return of(CallDim::kColumnBlocks).value_or(0) * 128;
  }

 private:
  std::array<std::optional<int64_t>, 5> told_;  // by CallDim; of kNone it means nothing
};

Tensor make_output(const ReadyOperation& ready, const PlannedTensor& planned,
                   const CallSizes& sizes, DLDevice device) {
  moejit_tensor_place place{};
  place.struct_size = sizeof place;
  check(moejit_operation_get_tensor_place(ready.operation, planned.index, sizes.tokens(), &place));
  for (std::size_t i = 0; i < planned.shape.size(); ++i) {
    const CallDim dim = planned.call_dims[i];
    if (dim != CallDim::kNone) place.shape[i] = sizes.of(dim).value_or(place.shape[i]);
  }
  Tensor output({place.shape, planned.shape.size()}, planned.dtype, device);
  if (output.element_count() > 0 && (planned.is_updated || fills_blocks(device))) output.zero();
  return output;
}

// Throws if the operation does not fit the operator, or the call has other inputs.
void check_inputs(const ReadyOperation& ready, const std::array<Tensor, kMostInputs>& given) {
  if (ready.inputs.size() > kMostInputs || ready.outputs.size() > kMostOutputs ||
      ready.outputs.empty())
    fail(MOEJIT_ERROR_UNSUPPORTED, "argument operation: torch's operator does not take it",
         "run it with moejit.Operation, whose calls get the outputs' memory too");
  for (std::size_t i = ready.inputs.size(); i < kMostInputs; ++i)
    if (given[i].element_count() > 0)
      fail(MOEJIT_ERROR_TENSOR_MISMATCH,
           "input " + std::to_string(i) + ": the operation has " +
               std::to_string(ready.inputs.size()) + " inputs",
           "give tensors without elements for the rest");
}

void operation(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<kMostInputs> in(stack);
  in.describe(0, "of the first input");
  const DLDevice device = in.tensors()[0].device();
  const ReadyOperation& ready = ready_operation(in.text(), device);
  for (std::size_t i = 0; i < kMostInputs; ++i)
    in.describe(i, i < ready.inputs.size() ? ready.inputs[i].name.c_str() : "behind the inputs");
  check_inputs(ready, in.tensors());

  std::array<moejit_tensor, kMostInputs + kMostOutputs> tensors{};
  std::size_t count = 0;
  CallSizes sizes;
  for (std::size_t i = 0; i < ready.inputs.size(); ++i) {
    const Tensor& input = in.tensors()[i];
    sizes.read(ready.inputs[i], input);
    tensors[count++] = {ready.inputs[i].name.c_str(), &input.dl()};
  }
  std::array<Tensor, kMostOutputs> outputs;
  for (std::size_t i = 0; i < kMostOutputs; ++i) {
    if (i < ready.outputs.size()) {
      outputs[i] = make_output(ready, ready.outputs[i], sizes, device);
      tensors[count++] = {ready.outputs[i].name.c_str(), &outputs[i].dl()};
    } else {
      outputs[i] = make_empty(device);
    }
  }
  moejit_call call{};
  call.struct_size = sizeof call;
  call.tensors = tensors.data();
  call.tensor_count = count;
  call.stream = current_stream(device);
  check(moejit_operation_run(ready.operation, &call));
  for (std::size_t i = 0; i < kMostOutputs; ++i) stack[i] = outputs[i].release();
}

}  // namespace

const std::array<Operator, 1> kOperationOperators = {{
    {"operation",
     "operation(Tensor in0, Tensor in1, Tensor in2, Tensor in3, Tensor in4, Tensor in5, "
     "Tensor in6, Tensor in7, str operation) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     operation},
}};

}  // namespace moejit::torch
