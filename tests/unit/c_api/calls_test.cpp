// SPDX-License-Identifier: Apache-2.0
#include "tests/support/matchers.h"
#include "tests/unit/c_api/sim_layer.h"

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace moejit::testing {
namespace {

// One layer for all cases: they leave its tensors as they were.
class CApiCalls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    sim_ = new SimLayer;
    is_open_ = sim_->open() == MOEJIT_OK;
    why_ = moejit_last_error()->message;
  }
  static void TearDownTestSuite() {
    delete sim_;
    sim_ = nullptr;
  }
  void SetUp() override {
    ASSERT_TRUE(is_open_) << why_;
    call_ = sim_->call();
    tensors_.assign(call_.tensors, call_.tensors + call_.tensor_count);
  }
  moejit_error_code update() { return run(&moejit_layer_update_weights); }
  moejit_error_code forward() { return run(&moejit_layer_forward); }
  moejit_error_code run(moejit_error_code (*function)(moejit_plan*, const moejit_call*)) {
    call_.tensors = tensors_.data();
    call_.tensor_count = tensors_.size();
    return function(sim_->layer(), &call_);
  }
  // The call's own tensor of this name, to be changed.
  DLTensor& change(std::string_view name) {
    for (moejit_tensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      changed_ = *tensor.tensor;
      tensor.tensor = &changed_;
    }
    return changed_;
  }
  void remove(std::string_view name) {
    std::erase_if(tensors_, [&](const moejit_tensor& tensor) { return tensor.name == name; });
  }

  static inline SimLayer* sim_ = nullptr;
  static inline bool is_open_ = false;
  static inline std::string why_;
  moejit_call call_{};
  std::vector<moejit_tensor> tensors_;
  DLTensor changed_{};
};

TEST_F(CApiCalls, TakeIntegersOfTheSameBitsForFloat8AndUint32) {
  DLTensor& q = change("w1_q");
  q.dtype = {.code = kDLUInt, .bits = 8, .lanes = 1};
  ASSERT_TRUE(is_ok(update()));
  tensors_.assign(sim_->call().tensors, sim_->call().tensors + sim_->call().tensor_count);
  DLTensor& status = change("status");
  status.dtype = {.code = kDLInt, .bits = 32, .lanes = 1};
  EXPECT_TRUE(is_ok(forward()));
}

TEST_F(CApiCalls, AddTheByteOffset) {
  ASSERT_TRUE(is_ok(update()));
  ASSERT_TRUE(is_ok(forward()));
  const auto wanted = sim_->read("y");
  DLTensor& x = change("x");
  x.data = static_cast<std::byte*>(x.data) - 4096;
  x.byte_offset = 4096;
  ASSERT_TRUE(is_ok(forward()));
  EXPECT_EQ(sim_->read("y"), wanted);
}

TEST_F(CApiCalls, TakeStridesThatAreRowMajor) {
  ASSERT_TRUE(is_ok(update()));
  DLTensor& x = change("x");
  std::array<int64_t, 2> strides = {256, 1};
  x.strides = strides.data();
  EXPECT_TRUE(is_ok(forward()));
}

TEST_F(CApiCalls, NameTheTensorThatIsNotRight) {
  const auto refuse = [&](std::string_view name, const auto& spoil, const auto&... words) {
    tensors_.assign(sim_->call().tensors, sim_->call().tensors + sim_->call().tensor_count);
    spoil(change(name));
    EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH,
                         "tensor " + std::string(name) + ":", words...));
    EXPECT_EQ(std::string_view(moejit_last_error()->stage), "launch");
  };
  std::array<int64_t, 2> wide = {512, 1}, columns = {1, kSimTokens}, many = {17, 256};
  refuse(
      "x", [](DLTensor& x) { x.device.device_type = kDLCUDA; }, "CUDA 0", "wanted the CPU");
  refuse(
      "x", [](DLTensor& x) { x.dtype.code = kDLFloat; }, "float16", "BF16", "bfloat16");
  refuse(
      "x", [](DLTensor& x) { x.dtype.lanes = 2; }, "bfloat16x2");
  refuse(
      "y",
      [](DLTensor& y) {
        y.dtype = {kDLUInt, 16, 1};
      },
      "uint16");
  refuse(
      "x", [&](DLTensor& x) { x.strides = wide.data(); }, "[512, 1]", "[11, 256]");
  refuse(
      "x", [&](DLTensor& x) { x.strides = columns.data(); }, "[1, 11]", "row-major");
  refuse(
      "x", [](DLTensor& x) { x.ndim = -1; }, "-1 dimensions");
  refuse(
      "x", [](DLTensor& x) { x.shape = nullptr; }, "no shape");
  refuse(
      "x", [](DLTensor& x) { x.ndim = 1; }, "1 dimensions, wanted 2");
  refuse(
      "x", [](DLTensor& x) { x.ndim = 1'000'000'000; }, "wanted 2");  // never read that far
  refuse(
      "x", [&](DLTensor& x) { x.shape = many.data(); }, "[17, 256]");
  refuse(
      "x", [](DLTensor& x) { x.byte_offset += 8; }, "not a multiple of 16");
  refuse(
      "x", [](DLTensor& x) { x.data = nullptr; }, "null");
}

TEST_F(CApiCalls, WantMemoryOfItsOwnForWhatTheyWrite) {
  ASSERT_TRUE(is_ok(update()));
  DLTensor& status = change("status");
  status.data = sim_->tensor("y").data;
  EXPECT_TRUE(
      is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "tensor y,", "overlaps tensor status"));
  EXPECT_NE(std::string_view(moejit_last_error()->hint), "");
}

TEST_F(CApiCalls, LeaveTensorsOfOtherCallsUnchecked) {
  ASSERT_TRUE(is_ok(update()));
  change("w1").device.device_type = kDLCUDA;
  EXPECT_TRUE(is_ok(forward()));
  remove("w1");
  EXPECT_TRUE(is_ok(forward()));
}

TEST_F(CApiCalls, NameTensorsThatAreMissingUnknownOrGivenTwice) {
  remove("x");
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_MISSING_TENSOR, "tensor x is missing"));
  tensors_.push_back({"z", tensors_.front().tensor});
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "tensor z:"));
  tensors_.back() = {"h2", tensors_.front().tensor};  // of the workspace
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "tensor h2:"));
  tensors_.pop_back();
  tensors_.push_back({"y", &sim_->tensor("y")});
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "tensor y:", "twice"));
  tensors_.assign(145, {"y", &sim_->tensor("y")});
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "more than 144 tensors"));
}

TEST_F(CApiCalls, SayWhichPointerIsNull) {
  tensors_[1].name = nullptr;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_INVALID_VALUE, "name of tensor 1"));
  tensors_[1] = {"x", nullptr};
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_INVALID_VALUE, "tensor x: its DLTensor is NULL"));
  call_.tensors = nullptr;
  EXPECT_TRUE(is_error(moejit_layer_forward(sim_->layer(), &call_), MOEJIT_ERROR_INVALID_VALUE,
                       "call->tensors of moejit_plan_call"));
  EXPECT_TRUE(is_error(moejit_layer_forward(sim_->layer(), nullptr), MOEJIT_ERROR_INVALID_VALUE,
                       "call of moejit_plan_call"));
}

TEST_F(CApiCalls, CheckTheirMemory) {
  moejit_plan_sizes sizes = {};
  sizes.struct_size = sizeof(sizes);
  ASSERT_TRUE(is_ok(moejit_plan_get_sizes(sim_->layer(), kSimTokens, &sizes)));
  const moejit_call right = call_;
  call_.workspace_bytes = 0;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_WORKSPACE_TOO_SMALL, "workspace", "11 tokens"));
  call_ = right;
  call_.saved_bytes = sizes.saved_bytes - 1;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_WORKSPACE_TOO_SMALL, "saved", "11 tokens"));
  call_ = right;
  call_.saved = nullptr;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "saved", "null"));
  call_ = right;
  call_.workspace = static_cast<std::byte*>(call_.workspace) + 32;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "workspace", "multiple of 64"));
  call_ = right;
  call_.saved = static_cast<std::byte*>(call_.saved) + 16;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "saved", "multiple of 64"));
}

TEST_F(CApiCalls, CheckTheirRecord) {
  call_.struct_size = 0;
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_INVALID_VALUE, "struct_size of moejit_call"));
  call_.struct_size = offsetof(moejit_call, workspace);  // of a version without workspaces
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_WORKSPACE_TOO_SMALL, "0 bytes"));
  call_.struct_size = offsetof(moejit_call, stream);
  ASSERT_TRUE(is_ok(update()));
  EXPECT_TRUE(is_ok(forward()));
}

TEST_F(CApiCalls, RefuseAnUnknownGradientMode) {
  const auto mode = static_cast<moejit_gradient_mode>(1 + MOEJIT_GRADIENT_ADD);
  EXPECT_TRUE(is_error(moejit_layer_backward(sim_->layer(), mode, &call_), MOEJIT_ERROR_UNSUPPORTED,
                       "has no call in an unknown mode"));
}

TEST_F(CApiCalls, ReportWhatTheSimulatorCaught) {
  ASSERT_TRUE(is_ok(update()));
  void* unwritten = nullptr;
  ASSERT_TRUE(is_ok(moejit_device_allocate(sim_->device(), kSimTokens * 256 * 2, &unwritten)));
  change("x").data = unwritten;
  std::memset(unwritten, 0, kSimTokens * 256 * 2);  // which the simulator does not see
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_SIMULATOR_FAULT, "x"));
  EXPECT_NE(std::string(moejit_last_error()->hint).find("copy to the device's memory"),
            std::string::npos);
  ASSERT_TRUE(
      is_ok(moejit_device_fill(sim_->device(), unwritten, 0, kSimTokens * 256 * 2, nullptr)));
  EXPECT_TRUE(is_ok(forward()));
  EXPECT_TRUE(is_ok(moejit_device_release(sim_->device(), unwritten)));
}

TEST_F(CApiCalls, SetTheStatusWordForBadExperts) {
  ASSERT_TRUE(is_ok(update()));
  const auto ids = input_values("topk_ids", "I32", kSimTokens * 2);
  const auto bytes = static_cast<int64_t>(ids.size());
  const int32_t bad = 4;
  void* const address = sim_->tensor("topk_ids").data;
  ASSERT_TRUE(is_ok(moejit_device_copy_to_device(sim_->device(), address, &bad, sizeof(bad))));
  ASSERT_TRUE(is_ok(forward()));
  uint32_t status = 0;
  std::memcpy(&status, sim_->read("status").data(), sizeof(status));
  EXPECT_TRUE(is_error(moejit_status_check(status), MOEJIT_ERROR_DEVICE_STATUS, "expert ids"));
  ASSERT_TRUE(is_ok(moejit_device_copy_to_device(sim_->device(), address, ids.data(), bytes)));
  ASSERT_TRUE(
      is_ok(moejit_device_fill(sim_->device(), sim_->tensor("status").data, 0, 4, nullptr)));
}

TEST_F(CApiCalls, AddBitsToTheStatusWordAndClearNone) {
  ASSERT_TRUE(is_ok(update()));
  const auto ids = input_values("topk_ids", "I32", kSimTokens * 2);
  void* const ids_address = sim_->tensor("topk_ids").data;
  void* const status_address = sim_->tensor("status").data;
  const auto word_after = [&](int32_t first_id, uint32_t word) {
    EXPECT_TRUE(
        is_ok(moejit_device_copy_to_device(sim_->device(), status_address, &word, sizeof(word))));
    EXPECT_TRUE(is_ok(
        moejit_device_copy_to_device(sim_->device(), ids_address, &first_id, sizeof(first_id))));
    EXPECT_TRUE(is_ok(forward()));
    std::memcpy(&word, sim_->read("status").data(), sizeof(word));
    return word;
  };
  constexpr uint32_t kOther = 64;  // no bit of a kernel
  EXPECT_EQ(word_after(0, kOther), kOther);
  EXPECT_EQ(word_after(4, kOther), kOther | MOEJIT_STATUS_BAD_EXPERT_ID);
  EXPECT_EQ(word_after(0, MOEJIT_STATUS_BAD_EXPERT_ID), MOEJIT_STATUS_BAD_EXPERT_ID);
  ASSERT_TRUE(is_ok(moejit_device_copy_to_device(sim_->device(), ids_address, ids.data(),
                                                 static_cast<int64_t>(ids.size()))));
  ASSERT_TRUE(is_ok(moejit_device_fill(sim_->device(), status_address, 0, 4, nullptr)));
}

TEST_F(CApiCalls, RunOnSeveralThreadsWithTheirOwnMemory) {
  ASSERT_TRUE(is_ok(update()));
  ASSERT_TRUE(is_ok(forward()));
  const auto wanted = sim_->read("y");
  SimLayer other;
  ASSERT_TRUE(is_ok(other.open()));
  const moejit_call weights = other.call();
  ASSERT_TRUE(is_ok(moejit_layer_update_weights(other.layer(), &weights)));
  // The one layer's kernels with the other's tensors: both have the same shapes.
  std::array<moejit_error_code, 2> codes{};
  const auto run_with = [&](std::size_t i, SimLayer& memory) {
    const moejit_call call = memory.call();
    codes[i] = moejit_layer_forward(sim_->layer(), &call);
  };
  std::thread first([&] { run_with(0, *sim_); });
  std::thread second([&] { run_with(1, other); });
  first.join();
  second.join();
  EXPECT_EQ(codes[0], MOEJIT_OK);
  EXPECT_EQ(codes[1], MOEJIT_OK);
  EXPECT_EQ(sim_->read("y"), wanted);
  EXPECT_EQ(other.read("y"), wanted);
}

// A layer of its own, with handles that the cases destroy themselves.
class CApiPrepare : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &device_)));
    ASSERT_TRUE(
        is_ok(moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", nullptr, &layer_)));
    options_ = engine_options();
  }
  void TearDown() override {
    moejit_plan_destroy(layer_);
    moejit_engine_destroy(engine_);
    moejit_device_destroy(device_);
  }

  moejit_engine_options options_{};
  moejit_device* device_ = nullptr;
  moejit_engine* engine_ = nullptr;
  moejit_plan* layer_ = nullptr;
};

TEST_F(CApiPrepare, ComesBeforeEveryCall) {
  moejit_call call = {};
  call.struct_size = sizeof(call);
  for (const auto code :
       {moejit_layer_update_weights(layer_, &call), moejit_layer_forward(layer_, &call),
        moejit_layer_backward(layer_, MOEJIT_GRADIENT_ADD, &call),
        moejit_layer_backward_data(layer_, &call),
        moejit_layer_backward_weights(layer_, MOEJIT_GRADIENT_ADD, &call)})
    EXPECT_TRUE(is_error(code, MOEJIT_ERROR_INVALID_VALUE, "tiny is not prepared"));
}

TEST_F(CApiPrepare, NeedsEngineAndDevice) {
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  EXPECT_TRUE(is_error(moejit_plan_prepare(layer_, nullptr, device_), MOEJIT_ERROR_INVALID_VALUE,
                       "engine of"));
  EXPECT_TRUE(is_error(moejit_plan_prepare(layer_, engine_, nullptr), MOEJIT_ERROR_INVALID_VALUE,
                       "device of"));
}

TEST_F(CApiPrepare, IsForTheTargetOfThePlan) {
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  moejit_plan_destroy(layer_);
  layer_ = nullptr;
  ASSERT_TRUE(is_ok(
      moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "cuda:sm_90a", nullptr, &layer_)));
  EXPECT_TRUE(is_error(moejit_plan_prepare(layer_, engine_, device_), MOEJIT_ERROR_UNSUPPORTED,
                       "cuda:sm_90a", "sim"));
}

TEST_F(CApiPrepare, CompilesNothingWhereTheEngineIsFrozen) {
  const TestDir empty;
  const std::string path = empty.path().string();
  options_.cache_dir = path.c_str();
  options_.frozen = 1;
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  EXPECT_TRUE(
      is_error(moejit_plan_prepare(layer_, engine_, device_), MOEJIT_ERROR_CACHE_MISS, path));
  EXPECT_EQ(std::string_view(moejit_last_error()->stage), "cache");
}

TEST_F(CApiPrepare, KeepsToTheLimitsAndFoldersThatItIsGiven) {
  const TestDir place;
  const std::string cache = (place / "cache").string(), run = (place / "run").string();
  std::vector<std::string> old;
  for (const char digit : {'a', 'b', 'c', 'd'}) {
    const std::string hex(64, digit);
    const std::string folder = cache + "/v2/" + hex.substr(0, 2);
    std::filesystem::create_directories(folder);
    old.push_back(folder + "/" + hex.substr(2));
    std::ofstream(old.back()) << "old";
    std::filesystem::last_write_time(
        old.back(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  for (const std::string& folder : {cache, cache + "/v2"})
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  options_.cache_dir = cache.c_str();
  options_.cache_max_files = 1;
  options_.run_dir = run.c_str();
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  ASSERT_TRUE(is_ok(moejit_plan_prepare(layer_, engine_, device_)));
  for (const std::string& file : old) EXPECT_FALSE(std::filesystem::exists(file)) << file;
  EXPECT_FALSE(std::filesystem::is_empty(run));  // has lock files
}

TEST_F(CApiPrepare, IsDoneOnceAndOutlivesEngineAndDevice) {
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  ASSERT_TRUE(is_ok(moejit_plan_prepare(layer_, engine_, device_)));
  EXPECT_TRUE(is_error(moejit_plan_prepare(layer_, engine_, device_), MOEJIT_ERROR_INVALID_VALUE,
                       "prepared already"));
  moejit_engine_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_TRUE(is_ok(moejit_engine_get_info(engine_, &info)));
  EXPECT_GT(info.compiled + info.from_cache, 0);
  moejit_engine_destroy(engine_);
  engine_ = nullptr;
  moejit_device_destroy(device_);
  device_ = nullptr;
  moejit_call call = {};
  call.struct_size = sizeof(call);
  EXPECT_TRUE(is_error(moejit_layer_forward(layer_, &call), MOEJIT_ERROR_MISSING_TENSOR));
}

}  // namespace
}  // namespace moejit::testing
