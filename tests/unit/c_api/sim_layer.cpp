// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/c_api/sim_layer.h"

#include "tests/support/test_engine.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#define MOEJIT_TEST_TRY(call)              \
  do {                                     \
    const moejit_error_code code = (call); \
    if (code != MOEJIT_OK) return code;    \
  } while (false)

namespace moejit::testing {
namespace {

template <typename Element, typename Make>
std::vector<std::byte> values_of(int64_t elements, Make&& make) {
  std::vector<Element> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = make(i);
  std::vector<std::byte> bytes(values.size() * sizeof(Element));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

uint16_t bf16_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

std::vector<std::byte> input_values(std::string_view name, std::string_view dtype,
                                    int64_t elements) {
  std::mt19937 random(static_cast<uint32_t>(name[0]) * 256 + static_cast<uint32_t>(name.back()));
  const auto next = [&] { return static_cast<float>(random() % 4096) / 2048.0F - 1.0F; };
  if (dtype == "BF16")
    return values_of<uint16_t>(elements, [&](auto) { return bf16_bits(next()); });
  if (dtype == "F32") return values_of<float>(elements, [&](auto) { return next() + 1.0F; });
  // Two different experts of four for each token; every fifth choice is not on this rank.
  return values_of<int32_t>(elements, [](std::size_t i) {
    return i % 5 == 4 ? -1 : static_cast<int32_t>((i / 2 + 2 * (i % 2)) % 4);
  });
}

moejit_engine_options engine_options() {
  static const std::string folder = [] {
    std::string kept = test_cache_folder();
    return kept.empty() ? MOEJIT_BINARY_DIR "/tests/unit/c_api/cache" : kept;
  }();
  moejit_engine_options options = {};
  options.struct_size = sizeof(options);
  options.cache_dir = folder.c_str();
  options.cache_max_bytes = INT64_MAX;
  options.cache_max_files = INT64_MAX;
  return options;
}

SimLayer::SimLayer() = default;

SimLayer::~SimLayer() {
  for (Tensor& tensor : tensors_) moejit_device_release(device_, tensor.dl.data);
  if (device_ != nullptr) {
    moejit_device_release(device_, call_.workspace);
    moejit_device_release(device_, call_.saved);
    moejit_device_release(device_, call_.deferred);
  }
  moejit_plan_destroy(layer_);
  moejit_engine_destroy(engine_);
  moejit_device_destroy(device_);
}

moejit_error_code SimLayer::open(std::string_view json, int64_t tokens, int64_t workers) {
  moejit_simulator_options simulator = {};
  simulator.struct_size = sizeof(simulator);
  simulator.workers = workers;
  const moejit_engine_options engine = engine_options();
  moejit_device_info place = {};
  place.struct_size = sizeof(place);
  moejit_plan_info info = {};
  info.struct_size = sizeof(info);
  MOEJIT_TEST_TRY(moejit_device_open_simulator(&simulator, &device_));
  MOEJIT_TEST_TRY(moejit_engine_create(&engine, &engine_));
  MOEJIT_TEST_TRY(moejit_plan_create(json.data(), json.size(), "sim", nullptr, &layer_));
  MOEJIT_TEST_TRY(moejit_plan_prepare(layer_, engine_, device_));
  MOEJIT_TEST_TRY(moejit_device_get_info(device_, &place));
  MOEJIT_TEST_TRY(moejit_plan_get_info(layer_, &info));
  for (std::size_t i = 0; i < info.tensor_count; ++i) MOEJIT_TEST_TRY(add(i, place, tokens));
  call_.struct_size = sizeof(call_);
  call_.workspace_bytes = info.workspace_bytes;
  call_.saved_bytes = info.saved_bytes;
  call_.deferred_bytes = info.deferred_bytes;
  MOEJIT_TEST_TRY(moejit_device_allocate(device_, info.workspace_bytes, &call_.workspace));
  MOEJIT_TEST_TRY(moejit_device_allocate(device_, info.deferred_bytes, &call_.deferred));
  return moejit_device_allocate(device_, info.saved_bytes, &call_.saved);
}

moejit_error_code SimLayer::add(std::size_t index, const moejit_device_info& place,
                                int64_t tokens) {
  moejit_tensor_info info = {};
  info.struct_size = sizeof(info);
  MOEJIT_TEST_TRY(moejit_plan_get_tensor(layer_, index, &info));
  if (info.offset >= 0) return MOEJIT_OK;  // a slice of a block
  if (info.is_optional != 0) return MOEJIT_OK;
  Tensor& tensor = tensors_.emplace_back(Tensor{.name = info.name, .dtype = info.dtype_name});
  tensor.role = info.role;
  tensor.bytes = info.dtype.bits / 8;
  for (int32_t d = 0; d < info.ndim; ++d) {
    const bool is_tokens = std::string_view(info.symbols[d]) == "T";
    tensor.shape.push_back(is_tokens ? tokens : info.shape[d]);
    tensor.bytes *= tensor.shape.back();
  }
  tensor.dl.device = place.dl_device;
  tensor.dl.ndim = info.ndim;
  tensor.dl.dtype = info.dtype;
  tensor.dl.shape = tensor.shape.data();
  MOEJIT_TEST_TRY(moejit_device_allocate(device_, tensor.bytes, &tensor.dl.data));
  named_.push_back({tensor.name.c_str(), &tensor.dl});
  return fill(tensor);
}

moejit_error_code SimLayer::fill(Tensor& tensor) {
  if (tensor.name == "status") {
    return moejit_device_fill(device_, tensor.dl.data, 0, tensor.bytes, nullptr);
  }
  if (tensor.role == MOEJIT_ROLE_STATE) {
    const bool is_scale = tensor.name.ends_with("_scale");
    const std::vector<float> values(static_cast<std::size_t>(tensor.bytes) / sizeof(float),
                                    is_scale ? 1.0F : 0.0F);
    return moejit_device_copy_to_device(device_, tensor.dl.data, values.data(), tensor.bytes);
  }
  if (tensor.role != MOEJIT_ROLE_INPUT && tensor.role != MOEJIT_ROLE_WEIGHT) return MOEJIT_OK;
  const auto values =
      input_values(tensor.name, tensor.dtype, tensor.bytes * 8 / tensor.dl.dtype.bits);
  return moejit_device_copy_to_device(device_, tensor.dl.data, values.data(), tensor.bytes);
}

moejit_call SimLayer::call() const {
  moejit_call call = call_;
  call.tensors = named_.data();
  call.tensor_count = named_.size();
  return call;
}

SimLayer::Tensor& SimLayer::find(std::string_view name) {
  return *std::ranges::find(tensors_, name, &Tensor::name);
}

DLTensor& SimLayer::tensor(std::string_view name) { return find(name).dl; }

std::vector<std::byte> SimLayer::read(std::string_view name) {
  const Tensor& tensor = find(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
  const auto code = moejit_device_copy_to_host(device_, bytes.data(), tensor.dl.data, tensor.bytes);
  if (code != MOEJIT_OK) bytes.clear();
  return bytes;
}

}  // namespace moejit::testing
