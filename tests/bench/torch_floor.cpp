// SPDX-License-Identifier: Apache-2.0
// An operator of torch with the schema of moejit::call, which allocates what that allocates and
// does nothing else. Its times are what torch itself takes for such an operator: the floor under
// the times of `hf_experts_bench.py --host`. MOEJIT_TORCH_FLOOR names the library.
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/operators.h"

#include <cstdint>
#include <vector>

namespace moejit::torch {
namespace {

constexpr uint64_t kVersion = (uint64_t{2} << 56) | (uint64_t{10} << 48);
constexpr DLDataType kBytes{kDLUInt, 8, 1};
constexpr int64_t kBlockBytes = 65536;

Tensor make(int64_t size, DLDataType dtype, DLDevice device) {
  return Tensor({&size, 1}, dtype, device);
}

Tensor make_like(const Tensor& tensor) {
  return Tensor({tensor.dl().shape, static_cast<std::size_t>(tensor.dl().ndim)}, tensor.dl().dtype,
                tensor.device());
}

// Stands for the calls "forward", "update_weights+forward" and "backward", in which the tensors
// from the second one on, or all of them in backward, tell the shapes of results.
void call(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  const TensorList list(stack[0]);
  const Text name(stack[1]), plan(stack[2]);
  std::vector<Tensor> tensors = list.tensors();
  for (Tensor& tensor : tensors) tensor.describe("");
  const DLDevice device = tensors[0].device();
  std::vector<Tensor> results;
  const bool is_backward = name.get() == "backward";
  for (std::size_t i = is_backward ? 1 : 4; i < tensors.size(); ++i)
    results.push_back(make_like(tensors[i]));
  if (!is_backward) {
    results.push_back(make_like(tensors[0]));  // y
    results.push_back(make(1, {kDLInt, 32, 1}, device));
    if (name.get() != "forward") results.push_back(make(kBlockBytes, kBytes, device));  // saved
  }
  const Tensor workspace = make(kBlockBytes, kBytes, device);
  TensorList made = TensorList::make(results.size());
  for (Tensor& result : results) made.push_back(result);
  stack[0] = made.release();
}

constexpr Operator kFloor = {"call", "call(Tensor[] tensors, str call, str plan) -> Tensor[]",
                             call};

// Registers the operator when the library is loaded. torch prints why it was refused.
__attribute__((constructor)) void load() {
  LibraryOpaque* schemas = nullptr;
  if (aoti_torch_library_init_def("moejit_floor", "", 0, &schemas) != 0) return;
  aoti_torch_library_def(schemas, kFloor.schema);
  for (const char* key : {"CPU", "CUDA"}) {
    LibraryOpaque* kernels = nullptr;
    if (aoti_torch_library_init_impl("moejit_floor", key, "", 0, &kernels) != 0) return;
    torch_library_impl(kernels, kFloor.name, kFloor.kernel, kVersion);
  }
}

}  // namespace
}  // namespace moejit::torch
