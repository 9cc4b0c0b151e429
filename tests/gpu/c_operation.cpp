// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/c_operation.h"

#include "runtime/driver/context.h"
#include "runtime/driver/driver_api.h"
#include "tests/support/test_engine.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <utility>

namespace moejit::testing {
namespace {

constexpr uint8_t kUnwritten = 0x5a;

bool is_gpu() { return tested_target() == "cuda"; }

}  // namespace

std::string example_operation(std::string_view name, std::string_view from, std::string_view to) {
  std::string text = read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/examples/operations/" +
                                    std::string(name) + ".json")
                         .value();
  if (from.empty()) return text;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

moejit_device* COperation::device() {
  static moejit_device* const device = [] {
    moejit_device* opened = nullptr;
    const moejit_error_code code = is_gpu() ? moejit_device_open_cuda(0, &opened)
                                            : moejit_device_open_simulator(nullptr, &opened);
    return code == MOEJIT_OK ? opened : nullptr;
  }();
  return device;
}

moejit_engine* COperation::engine() {
  static moejit_engine* const engine = [] {
    const std::string folder = test_cache_folder();
    moejit_engine_options options = {};
    options.struct_size = sizeof(options);
    options.cache_dir = folder.c_str();
    options.memory_only = folder.empty() ? 1 : 0;
    options.packs = "";
    options.cache_max_bytes = INT64_MAX;
    options.cache_max_files = INT64_MAX;
    moejit_engine* created = nullptr;
    EXPECT_TRUE(is_ok(moejit_engine_create(&options, &created)));
    return created;
  }();
  return engine;
}

COperation::COperation(const std::string& json) {
  EXPECT_TRUE(is_ok(
      moejit_plan_create(json.data(), json.size(), tested_target().data(), nullptr, &operation_)));
  EXPECT_TRUE(is_ok(moejit_plan_prepare(operation_, engine(), device())));
}

COperation::~COperation() {
  for (const Memory& memory : memory_) moejit_device_release(device(), memory.address);
  moejit_plan_destroy(operation_);
}

int64_t COperation::bytes_of(const DLTensor& tensor) {
  int64_t bytes = tensor.dtype.bits * tensor.dtype.lanes / 8;
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= tensor.shape[d];
  return bytes;
}

COperation::Memory& COperation::allocate(int64_t bytes) {
  Memory& memory = memory_.emplace_back(Memory{.bytes = bytes});
  EXPECT_TRUE(is_ok(moejit_device_allocate(device(), bytes, &memory.address)));
  return memory;
}

COperation::Memory& COperation::add(const char* name, std::vector<int64_t> shape) {
  moejit_tensor_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_TRUE(is_ok(moejit_plan_find_tensor(operation_, name, &info)));
  moejit_device_info where = {};
  where.struct_size = sizeof(where);
  EXPECT_TRUE(is_ok(moejit_device_get_info(device(), &where)));
  Tensor& tensor = tensors_.emplace_back(Tensor{.name = name, .shape = std::move(shape)});
  tensor.dl.device = where.dl_device;
  tensor.dl.ndim = static_cast<int32_t>(tensor.shape.size());
  tensor.dl.dtype = info.dtype;
  tensor.dl.shape = tensor.shape.data();
  Memory& memory = allocate(bytes_of(tensor.dl));
  tensor.dl.data = memory.address;
  return memory;
}

void COperation::place(const void* address, std::span<const std::byte> values) {
  Memory& memory = *std::ranges::find(memory_, address, &Memory::address);
  memory.given.assign(values.begin(), values.end());
  if (memory.bytes == 0) return;
  EXPECT_TRUE(
      is_ok(moejit_device_copy_to_device(device(), memory.address, values.data(), memory.bytes)));
}

void COperation::reset() {
  for (const Memory& memory : memory_) {
    if (memory.bytes == 0) continue;
    EXPECT_TRUE(
        is_ok(memory.given.empty()
                  ? moejit_device_fill(device(), memory.address, kUnwritten, memory.bytes, nullptr)
                  : moejit_device_copy_to_device(device(), memory.address, memory.given.data(),
                                                 memory.bytes)));
  }
  EXPECT_TRUE(is_ok(moejit_device_synchronize(device(), nullptr)));
}

std::vector<std::vector<std::byte>> COperation::contents() const {
  std::vector<std::vector<std::byte>> all;
  for (const Memory& memory : memory_)
    all.push_back(read_at<std::byte>(memory.address, memory.bytes));
  return all;
}

moejit_error_code COperation::call(void* stream) {
  std::vector<moejit_tensor> named;
  for (const Tensor& tensor : tensors_) named.push_back({tensor.name.c_str(), &tensor.dl});
  moejit_call call = {};
  call.struct_size = sizeof(call);
  call.tensors = named.data();
  call.tensor_count = named.size();
  call.stream = stream;
  return moejit_operation_run(operation_, &call);
}

moejit_error_code COperation::run() {
  if (!is_gpu()) return call(nullptr);
  reset();
  if (const moejit_error_code code = call(nullptr); code != MOEJIT_OK) return code;
  run_in_a_graph();
  return MOEJIT_OK;
}

void COperation::run_in_a_graph() {
  const auto eager = contents();
  reset();
  const runtime::DriverApi& api = *runtime::driver_api().value();
  const auto context = runtime::Context::adopt(api, 0);
  const runtime::CurrentContext current(**context);
  CUstream stream = nullptr;
  CUgraph recorded = nullptr;
  CUgraphExec graph = nullptr;
  ASSERT_EQ(api.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  const moejit_error_code code = call(stream);
  ASSERT_EQ(api.stream_end_capture(stream, &recorded), CUDA_SUCCESS);
  ASSERT_TRUE(is_ok(code));
  ASSERT_EQ(api.graph_instantiate(&graph, recorded, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.graph_launch(graph, stream), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(contents(), eager) << "in a graph";
  EXPECT_EQ(api.graph_exec_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(api.graph_destroy(recorded), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_destroy(stream), CUDA_SUCCESS);
}

const DLTensor& COperation::find(std::string_view name) const {
  return std::ranges::find(tensors_, name, &Tensor::name)->dl;
}

}  // namespace moejit::testing
