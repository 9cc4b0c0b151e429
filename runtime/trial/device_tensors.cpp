// SPDX-License-Identifier: Apache-2.0

#include "runtime/trial/device_tensors.h"

#include "templates/moejit_device/params/multi_cast_transpose_params.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::trial {

using runtime::element_count;
using runtime::HostTensor;

using runtime::DeviceMemory;

namespace {

constexpr std::byte kUnwritten{0xff};  // makes a NaN in every float format

}  // namespace

Result<void> DeviceTensors::add(const std::string& name, compiler::DType dtype,
                                std::vector<int64_t> shape, const HostTensor* content) {
  const int64_t bytes = element_count(shape) * compiler::size_bytes(dtype);
  MOEJIT_TRY_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(device_, bytes));
  if (content == nullptr) {
    MOEJIT_TRY(device_.fill(memory.address(), kUnwritten, bytes, nullptr));
  } else if (!content->bytes.empty()) {
    const int64_t piece = std::ssize(content->bytes);
    auto* const start = static_cast<std::byte*>(memory.address());
    for (int64_t done = 0; done < bytes; done += piece)
      MOEJIT_TRY(device_.copy_to_device(start + done, content->bytes.data(),
                                        std::min(piece, bytes - done)));
  }
  tensors_.emplace(name, Tensor{dtype, std::move(shape), std::move(memory)});
  return {};
}

void DeviceTensors::put(const compiler::TensorPlan& tensor, DeviceMemory memory) {
  std::vector<int64_t> shape;
  for (const compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
  tensors_.emplace(tensor.name, Tensor{tensor.dtype, std::move(shape), std::move(memory)});
}

void* DeviceTensors::address_of(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.memory.address();
}

runtime::TensorRef DeviceTensors::ref(std::string_view name) const {
  const auto found = tensors_.find(name);
  return {found->first, found->second.dtype, found->second.shape, found->second.memory.address()};
}

Result<HostTensor> DeviceTensors::read(std::string_view name) const {
  const Tensor& tensor = tensors_.find(name)->second;
  HostTensor host{tensor.dtype, tensor.shape, {}};
  const int64_t bytes = element_count(host.shape) * compiler::size_bytes(host.dtype);
  host.bytes.resize(static_cast<size_t>(bytes));
  if (bytes == 0) return host;
  MOEJIT_TRY(device_.synchronize(nullptr));
  MOEJIT_TRY(device_.copy_to_host(host.bytes.data(), tensor.memory.address(), bytes));
  return host;
}

namespace {

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

std::optional<ListedTensors> listed_tensors(const compiler::Plan& plan) {
  using compiler::MatrixSize, compiler::MultiCastTransposeSpec;
  const auto* const sizes = compiler::find_field<std::vector<MatrixSize>>(*plan.operation, "sizes");
  if (sizes == nullptr) return std::nullopt;
  return ListedTensors{std::get<MultiCastTransposeSpec>(plan.kernels.front().spec), *sizes};
}

Result<std::vector<std::string>> add_list(const ListedTensors& list, const TensorMap& inputs,
                                          DeviceTensors& tensors) {
  const HostTensor zero = make_tensor(DType::kF32, {1}, std::vector<float>{0.0f});
  std::vector<std::string> written;
  std::vector<CastTransposeTensor> records;
  std::vector<int64_t> tile_ends;
  for (size_t i = 0; i < list.sizes.size(); ++i) {
    const auto& [rows, columns] = list.sizes[i];
    const auto name = [&](const char* what) { return fmt::format("{}.{}", what, i); };
    const auto write = [&](const char* what, DType dtype, std::vector<int64_t> shape,
                           const HostTensor* content) {
      written.push_back(name(what));
      return tensors.add(name(what), dtype, std::move(shape), content);
    };
    MOEJIT_TRY(tensors.add(name("input"), list.spec.input, {rows, columns},
                           &inputs.find(name("input"))->second));
    if (const auto scale = inputs.find(name("scale")); scale != inputs.end())
      MOEJIT_TRY(tensors.add(name("scale"), DType::kF32, {1}, &scale->second));
    MOEJIT_TRY(write("output", list.spec.output, {rows, columns}, nullptr));
    MOEJIT_TRY(write("output_colwise", list.spec.output, {columns, rows}, nullptr));
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
  const HostTensor all = numbers_of({count, 8}, records), ends = numbers_of({count}, tile_ends);
  MOEJIT_TRY(tensors.add("tensors", DType::kI64, all.shape, &all));
  MOEJIT_TRY(tensors.add("tile_ends", DType::kI64, ends.shape, &ends));
  return written;
}

}  // namespace moejit::trial
