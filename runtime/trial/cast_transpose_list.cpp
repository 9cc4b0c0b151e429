// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/cast_transpose_list.h"

#include "templates/moejit_device/params/multi_cast_transpose_params.h"

#include <fmt/core.h>

namespace moejit::trial {
namespace {

using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;
using device::CastTransposeTensor;

template <typename T>
T* address(const DeviceTensors& tensors, const std::string& name) {
  return static_cast<T*>(tensors.address_of(name));
}

template <typename T>
HostTensor numbers_of(std::vector<int64_t> shape, const std::vector<T>& records) {
  return make_tensor(DType::kI64, std::move(shape), records);
}

}  // namespace

Result<std::vector<std::string>> add_list(const compiler::MultiCastTransposeOperation& operation,
                                          const TensorMap& inputs, DeviceTensors& tensors) {
  const HostTensor zero = make_tensor(DType::kF32, {1}, std::vector<float>{0.0f});
  std::vector<std::string> written;
  std::vector<CastTransposeTensor> records;
  std::vector<int64_t> tile_ends;
  for (size_t i = 0; i < operation.sizes.size(); ++i) {
    const auto& [rows, columns] = operation.sizes[i];
    const auto name = [&](const char* what) { return fmt::format("{}.{}", what, i); };
    const auto write = [&](const char* what, DType dtype, std::vector<int64_t> shape,
                           const HostTensor* content) {
      written.push_back(name(what));
      return tensors.add(name(what), dtype, std::move(shape), content);
    };
    MOEJIT_TRY(tensors.add(name("input"), operation.input_dtype, {rows, columns},
                           &inputs.find(name("input"))->second));
    if (const auto scale = inputs.find(name("scale")); scale != inputs.end())
      MOEJIT_TRY(tensors.add(name("scale"), DType::kF32, {1}, &scale->second));
    MOEJIT_TRY(write("output", operation.output_dtype, {rows, columns}, nullptr));
    MOEJIT_TRY(write("output_colwise", operation.output_dtype, {columns, rows}, nullptr));
    MOEJIT_TRY(write("amax", DType::kF32, {1}, &zero));
    MOEJIT_TRY(write("scale_inv", DType::kF32, {1}, nullptr));
    records.push_back({.input = tensors.address_of(name("input")),
                       .output = address<uint8_t>(tensors, name("output")),
                       .output_colwise = address<uint8_t>(tensors, name("output_colwise")),
                       .scale = address<float>(tensors, name("scale")),
                       .amax = address<float>(tensors, name("amax")),
                       .scale_inv = address<float>(tensors, name("scale_inv")),
                       .rows = rows,
                       .columns = columns});
    const int64_t tiles = (rows + 127) / 128 * ((columns + 127) / 128);
    tile_ends.push_back(tiles + (tile_ends.empty() ? 0 : tile_ends.back()));
  }
  const int64_t count = std::ssize(records);
  const HostTensor list = numbers_of({count, 8}, records), ends = numbers_of({count}, tile_ends);
  MOEJIT_TRY(tensors.add("tensors", DType::kI64, list.shape, &list));
  MOEJIT_TRY(tensors.add("tile_ends", DType::kI64, ends.shape, &ends));
  return written;
}

}  // namespace moejit::trial
