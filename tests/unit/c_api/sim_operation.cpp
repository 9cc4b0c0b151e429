// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/c_api/sim_operation.h"

#include "tests/unit/c_api/sim_layer.h"

#include <algorithm>
#include <utility>

namespace moejit::testing {

std::string example_operation(std::string_view name, std::string_view from, std::string_view to) {
  std::string text = read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/examples/operations/" +
                                    std::string(name) + ".json")
                         .value();
  if (from.empty()) return text;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

moejit_device* SimOperation::device() {
  static moejit_device* const device = [] {
    moejit_device* opened = nullptr;
    EXPECT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &opened)));
    return opened;
  }();
  return device;
}

moejit_engine* SimOperation::engine() {
  static moejit_engine* const engine = [] {
    moejit_engine_options options = {};
    options.struct_size = sizeof(options);
    options.cache_dir = kKernelCache;
    moejit_engine* created = nullptr;
    EXPECT_TRUE(is_ok(moejit_engine_create(&options, &created)));
    return created;
  }();
  return engine;
}

SimOperation::SimOperation(const std::string& json) {
  EXPECT_TRUE(
      is_ok(moejit_operation_create(json.data(), json.size(), "sim", nullptr, &operation_)));
  EXPECT_TRUE(is_ok(moejit_operation_prepare(operation_, engine(), device())));
}

SimOperation::~SimOperation() {
  for (const Tensor& tensor : tensors_) moejit_device_release(device(), tensor.dl.data);
  moejit_operation_destroy(operation_);
}

int64_t SimOperation::bytes_of(const DLTensor& tensor) {
  int64_t bytes = tensor.dtype.bits / 8;
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= tensor.shape[d];
  return bytes;
}

DLTensor& SimOperation::want(const char* name, std::vector<int64_t> shape) {
  moejit_tensor_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_TRUE(is_ok(moejit_operation_find_tensor(operation_, name, &info)));
  Tensor& tensor = tensors_.emplace_back(Tensor{.name = name, .shape = std::move(shape)});
  tensor.dl.device = {.device_type = kDLCPU, .device_id = 0};
  tensor.dl.ndim = static_cast<int32_t>(tensor.shape.size());
  tensor.dl.dtype = info.dtype;
  tensor.dl.shape = tensor.shape.data();
  EXPECT_TRUE(is_ok(moejit_device_allocate(device(), bytes_of(tensor.dl), &tensor.dl.data)));
  return tensor.dl;
}

moejit_error_code SimOperation::run() {
  std::vector<moejit_tensor> named;
  for (const Tensor& tensor : tensors_) named.push_back({tensor.name.c_str(), &tensor.dl});
  moejit_call call = {};
  call.struct_size = sizeof(call);
  call.tensors = named.data();
  call.tensor_count = named.size();
  return moejit_operation_run(operation_, &call);
}

const DLTensor& SimOperation::find(std::string_view name) const {
  return std::ranges::find(tensors_, name, &Tensor::name)->dl;
}

}  // namespace moejit::testing
