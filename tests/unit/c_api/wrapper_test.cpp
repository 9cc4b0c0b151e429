// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/c_api/last_error.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <moejit/moejit.hpp>
#include <string>
#include <utility>

namespace {

using moejit::testing::kTinyLayer;

template <typename Function>
moejit::Error error_of(Function&& function) {
  try {
    function();
  } catch (const moejit::Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return moejit::Error(*moejit_last_error());
}

TEST(Wrapper, ThrowsTheLastErrorWithAllItsFields) {
  const moejit::Error error =
      error_of([] { const moejit::Layer layer(R"({"name": "a", "hiden": 1})", "sim"); });
  EXPECT_EQ(error.code(), MOEJIT_ERROR_UNKNOWN_KEY);
  EXPECT_EQ(std::string(error.code_name()), "unknown_key");
  EXPECT_EQ(error.stage(), "parse");
  EXPECT_NE(error.message().find("hiden"), std::string::npos);
  EXPECT_NE(error.hint().find("hidden"), std::string::npos);
  EXPECT_EQ(error.detail(), "");
  EXPECT_EQ(error.what(), "unknown_key: " + error.message() + " (" + error.hint() + ")");
}

TEST(Wrapper, SaysNothingOfAHintThatIsMissing) {
  const moejit::Error error({.code = MOEJIT_ERROR_DRIVER,
                             .stage = "load",
                             .message = "it failed",
                             .hint = "",
                             .detail = ""});
  EXPECT_STREQ(error.what(), "driver: it failed");
}

TEST(Wrapper, GivesWhatTheHandlesKnow) {
  moejit::Device device = moejit::Device::open_simulator();
  const moejit::Layer layer(kTinyLayer, device.info().target);
  EXPECT_EQ(std::string(device.info().name), "simulator");
  EXPECT_EQ(device.info().dl_device.device_type, kDLCPU);
  EXPECT_EQ(std::string(layer.info().name), "tiny");
  EXPECT_EQ(layer.tensors().size(), layer.info().tensor_count);
  EXPECT_EQ(std::string(layer.tensor("x").dtype_name), "BF16");
  EXPECT_EQ(layer.json().substr(0, 1), "{");
  EXPECT_EQ(layer.plan_json().substr(0, 1), "{");
  EXPECT_LT(layer.plan_text().size(), layer.plan_text(true).size());
  EXPECT_EQ(error_of([&] { (void)layer.tensor("z"); }).code(), MOEJIT_ERROR_MISSING_TENSOR);
}

TEST(Wrapper, UpdatesTheScalesOfAPass) {
  moejit::Layer layer(kTinyLayer, "sim");
  const auto call = moejit::make<moejit_call>();
  const moejit::Error error = error_of([&] { layer.update_scales(MOEJIT_PASS_FORWARD, call); });
  EXPECT_EQ(error.code(), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_NE(error.message().find("is not prepared"), std::string::npos);
}

TEST(Wrapper, HasSingleOperations) {
  const std::string json = R"({"operation": "quantize", "max_tokens": 16, "columns": 256})";
  moejit::Operation operation(json, "sim");
  EXPECT_EQ(std::string(operation.info().name), "quantize");
  EXPECT_EQ(operation.tensors().size(), 3U);
  EXPECT_EQ(std::string(operation.tensor("output").dtype_name), "F8_E4M3");
  EXPECT_EQ(operation.sizes(16).workspace_bytes, 0);
  EXPECT_EQ(operation.json().substr(0, 1), "{");
  EXPECT_EQ(operation.plan_json().substr(0, 1), "{");
  EXPECT_LT(operation.plan_text().size(), operation.plan_text(true).size());
  const auto call = moejit::make<moejit_call>();
  const moejit::Error error = error_of([&] { operation.run(call); });
  EXPECT_NE(error.message().find("quantize is not prepared"), std::string::npos);
  EXPECT_EQ(error_of([] { const moejit::Operation none("{}", "sim"); }).code(),
            MOEJIT_ERROR_MISSING_KEY);
}

TEST(Wrapper, GivesTheMemoryOfACall) {
  const moejit::Layer layer(kTinyLayer, "sim");
  EXPECT_EQ(layer.sizes(16).workspace_bytes, layer.info().workspace_bytes);
  EXPECT_EQ(layer.sizes(16).saved_bytes, layer.info().saved_bytes);
  EXPECT_LT(layer.sizes(1).workspace_bytes, layer.info().workspace_bytes);
  EXPECT_EQ(error_of([&] { (void)layer.sizes(17); }).code(), MOEJIT_ERROR_INVALID_VALUE);
  const auto tensors = layer.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(tensors[i].name);
    EXPECT_EQ(layer.tensor_place(i, 16).offset, tensors[i].offset);
    EXPECT_EQ(layer.tensor_place(i, 16).bytes, tensors[i].bytes);
    EXPECT_EQ(layer.tensor_place(i, 16).shape[0], tensors[i].shape[0]);
  }
  const auto error = error_of([&] { (void)layer.tensor_place(tensors.size(), 1); });
  EXPECT_EQ(error.code(), MOEJIT_ERROR_INVALID_VALUE);
}

TEST(Wrapper, CallsTheHalvesOfBackward) {
  moejit::Layer layer(kTinyLayer, "sim");
  const auto call = moejit::make<moejit_call>();
  const auto data = error_of([&] { layer.backward_data(call); });
  EXPECT_NE(data.message().find("tiny is not prepared"), std::string::npos);
  const auto weights = error_of([&] { layer.backward_weights(MOEJIT_GRADIENT_ADD, call); });
  EXPECT_NE(weights.message().find("tiny is not prepared"), std::string::npos);
}

TEST(Wrapper, MovesHandlesAndThrowsForEmptyOnes) {
  moejit::Layer first(kTinyLayer, "sim");
  const moejit_plan* const handle = first.get();
  const moejit::Layer second = std::move(first);
  EXPECT_EQ(second.get(), handle);
  EXPECT_EQ(first.get(), nullptr);  // NOLINT: what a moved handle is
  EXPECT_EQ(error_of([&] { (void)first.info(); }).code(), MOEJIT_ERROR_INVALID_VALUE);
}

TEST(Wrapper, MovesMemoryThroughTheDevice) {
  moejit::Device device = moejit::Device::open_simulator();
  void* const memory = device.allocate(4);
  const int given = 42;
  int got = 0;
  device.fill(memory, 0, 4);
  device.copy_to_device(memory, &given, 4);
  device.synchronize();
  device.copy_to_host(&got, memory, 4);
  EXPECT_EQ(got, 42);
  std::array<int, 2> more{};  // than there are
  const auto second = static_cast<char*>(memory) + 2;
  EXPECT_EQ(error_of([&] { device.copy_to_host(more.data(), memory, 5); }).code(),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(error_of([&] { device.copy_to_device(second, more.data(), 4); }).code(),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(error_of([&] { device.fill(second, 0, 3); }).code(), MOEJIT_ERROR_INVALID_VALUE);
  device.fill(second, 0, 2);
  device.release(memory);
  EXPECT_EQ(error_of([&] { device.release(memory); }).code(), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(error_of([&] { device.release(&got); }).code(), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(error_of([&] { device.allocate(-1); }).code(), MOEJIT_ERROR_INVALID_VALUE);
}

TEST(Wrapper, TellsTheWarnFunctionThatMovedWithTheEngine) {
  ASSERT_EQ(unsetenv("MOEJIT_CACHE_DIR"), 0);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/dev/null", 1), 0);
  int told = 0;
  moejit::EngineOptions options;
  options.warn = [&](std::string_view) {
    ++told;
    throw told;  // dropped
  };
  moejit::Engine engine(options);
  EXPECT_EQ(told, 1);
  const moejit::Engine moved = std::move(engine);
  EXPECT_EQ(moved.info().compiled, 0);
}

TEST(Wrapper, HandsPacksOver) {
  moejit::EngineOptions options;
  options.packs = "/nonexistent/a.moejitpack";
  EXPECT_EQ(error_of([&] { moejit::Engine engine(options); }).code(), MOEJIT_ERROR_FILE_NOT_FOUND);
}

TEST(Wrapper, HandsTheOptionsOverThatStandForVariables) {
  const auto refusal = [](const std::function<void(moejit::EngineOptions&)>& set) {
    moejit::EngineOptions options;
    options.memory_only = true;
    set(options);
    return error_of([&] { moejit::Engine engine(options); }).message();
  };
  using Options = moejit::EngineOptions;
  EXPECT_NE(refusal([](Options& options) { options.cache_max_bytes = -1; }).find("cache_max_bytes"),
            std::string::npos);
  EXPECT_NE(refusal([](Options& options) { options.cache_max_files = -1; }).find("cache_max_files"),
            std::string::npos);
  EXPECT_NE(refusal([](Options& options) { options.compile_jobs = -1; }).find("compile_jobs"),
            std::string::npos);
  ASSERT_EQ(setenv("MOEJIT_LOCK_SECONDS", "soon", 1), 0);
  EXPECT_NE(refusal([](Options&) {}).find("MOEJIT_LOCK_SECONDS"), std::string::npos);
  for (const int patience : {0, 1}) {
    Options options;
    options.memory_only = true;
    options.lock_patience = std::chrono::milliseconds(patience);
    EXPECT_EQ(moejit::Engine(options).info().compiled, 0);
  }
  ASSERT_EQ(unsetenv("MOEJIT_LOCK_SECONDS"), 0);
}

TEST(Wrapper, ChecksTheStatusWord) {
  moejit::check_status(0);
  EXPECT_EQ(error_of([] { moejit::check_status(MOEJIT_STATUS_ROW_OVERFLOW); }).code(),
            MOEJIT_ERROR_DEVICE_STATUS);
}

}  // namespace
