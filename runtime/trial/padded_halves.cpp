// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/padded_halves.h"

#include "runtime/reference/gate_up_layout.h"

#include <string_view>

namespace moejit::trial {
namespace {

using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

// Returns the dimension that has both halves, or -1.
int32_t halves_of(std::string_view name, const HostTensor& tensor) {
  const auto last = static_cast<int32_t>(tensor.shape.size()) - 1;
  if (name == "dh1_q" || name == "w1_colwise_q") return last;
  if (name.starts_with("dh1_colwise_scale_inv.")) return last;
  return name.starts_with("dh1_colwise_q.") ? 0 : -1;
}

HostTensor without_padding(const HostTensor& tensor, size_t dimension, int64_t columns,
                           int64_t padded) {
  int64_t inner = compiler::size_bytes(tensor.dtype);  // bytes for one index of the dimension
  for (size_t i = dimension + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
  HostTensor result{tensor.dtype, tensor.shape, {}};
  result.shape[dimension] = tensor.shape[dimension] / padded * columns;
  if (inner == 0) return result;
  for (auto half = tensor.bytes.begin(); half != tensor.bytes.end(); half += padded * inner)
    result.bytes.insert(result.bytes.end(), half, half + columns * inner);
  return result;
}

}  // namespace

void drop_padding_of_halves(TensorMap& tensors, int64_t columns, int64_t padded) {
  if (columns == padded) return;
  for (auto& [name, tensor] : tensors) {
    const int32_t dimension = halves_of(name, tensor);
    if (dimension >= 0)
      tensor = without_padding(tensor, static_cast<size_t>(dimension), columns, padded);
  }
}

void put_gate_first(TensorMap& tensors, int64_t columns) {
  for (const std::string_view name : {"h1", "dh1", "dh1_q", "dh1_colwise_q"}) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;
    HostTensor& tensor = found->second;
    tensor = make_tensor(tensor.dtype, tensor.shape,
                         reference::gate_first<uint16_t>(elements<uint16_t>(tensor), columns, 1));
  }
}

}  // namespace moejit::trial
