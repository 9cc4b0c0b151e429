// SPDX-License-Identifier: Apache-2.0
// Operators of torch with the arguments and results of moejit's, which allocate what those allocate
// and do nothing else. Their times are what torch itself takes for such operators: the floor under
// those of `hf_experts_bench.py --host`. MOEJIT_TORCH_FLOOR names the library.
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/operators.h"

#include <array>
#include <cstdint>

namespace moejit::torch {
namespace {

constexpr uint64_t kVersion = (uint64_t{2} << 56) | (uint64_t{10} << 48);
constexpr DLDataType kBf16{kDLBfloat, 16, 1};
constexpr DLDataType kBytes{kDLUInt, 8, 1};
constexpr int64_t kWorkspaceBytes = 65536;

Tensor make(int64_t size, DLDataType dtype, DLDevice device) {
  return Tensor({&size, 1}, dtype, device);
}

Tensor make_like(const Tensor& tensor) {
  return Tensor({tensor.dl().shape, static_cast<std::size_t>(tensor.dl().ndim)}, tensor.dl().dtype,
                tensor.device());
}

// Stands for moejit::infer.
void infer(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<8> in(stack);
  in.describe(0, "x");
  const Tensor& x = in.tensors()[0];
  Tensor y = make_like(x);
  Tensor status = make(1, {kDLInt, 32, 1}, x.device());
  const Tensor workspace = make(kWorkspaceBytes, kBytes, x.device());
  stack[0] = y.release();
  stack[1] = status.release();
}

// Stands for moejit::quantize_forward. Takes "quantized" too, for its size.
void train(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<8> in(stack);
  in.describe(0, "x");
  in.describe(7, "quantized");
  const Tensor& x = in.tensors()[0];
  const Tensor& quantized = in.tensors()[7];
  std::array<Tensor, 5> results = {make_like(x), make(kWorkspaceBytes, kBytes, x.device()),
                                   make(1, {kDLInt, 32, 1}, x.device()),
                                   make(0, kBytes, x.device()), make_like(quantized)};
  const Tensor rowwise = make_like(quantized);
  const Tensor workspace = make(kWorkspaceBytes, kBytes, x.device());
  for (std::size_t i = 0; i < results.size(); ++i) stack[i] = results[i].release();
}

// Stands for moejit::backward.
void backward(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<10> in(stack);
  for (const std::size_t index : {0, 3, 4, 5}) in.describe(index, "");
  const auto& tensors = in.tensors();
  const DLDevice device = tensors[0].device();
  std::array<Tensor, 6> results = {make_like(tensors[0]),  make_like(tensors[3]),
                                   make_like(tensors[4]),  make_like(tensors[5]),
                                   make(0, kBf16, device), make(0, kBf16, device)};
  const Tensor workspace = make(kWorkspaceBytes, kBytes, device);
  for (std::size_t i = 0; i < results.size(); ++i) stack[i] = results[i].release();
}

constexpr std::array<Operator, 3> kFloor = {{
    {"infer",
     "infer(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, Tensor b1, "
     "Tensor b2, Tensor quantized, str layer) -> (Tensor, Tensor)",
     infer},
    {"train",
     "train(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, Tensor b1, "
     "Tensor b2, Tensor quantized, str layer) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     train},
    {"backward",
     "backward(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, str layer) -> (Tensor, "
     "Tensor, Tensor, Tensor, Tensor, Tensor)",
     backward},
}};

// Registers the operators when the library is loaded. torch prints why one was refused.
__attribute__((constructor)) void load() {
  LibraryOpaque* schemas = nullptr;
  if (aoti_torch_library_init_def("moejit_floor", "", 0, &schemas) != 0) return;
  for (const Operator& entry : kFloor) aoti_torch_library_def(schemas, entry.schema);
  for (const char* key : {"CPU", "CUDA"}) {
    LibraryOpaque* kernels = nullptr;
    if (aoti_torch_library_init_impl("moejit_floor", key, "", 0, &kernels) != 0) return;
    for (const Operator& entry : kFloor)
      torch_library_impl(kernels, entry.name, entry.kernel, kVersion);
  }
}

}  // namespace
}  // namespace moejit::torch
