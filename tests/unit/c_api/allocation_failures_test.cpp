// SPDX-License-Identifier: Apache-2.0
// A host that has no memory left gets an error and goes on. malloc is this program's own: it fails
// on a thread from a chosen allocation on, until a call has returned, also to who cleans up.
#include "compiler/worker/messages.h"
#include "tests/unit/c_api/counted_malloc.h"
#include "tests/unit/c_api/sim_layer.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <new>

namespace moejit::testing {
namespace {

// Calls about so many times, with some allocations more each time, until nothing fails any more.
void expect_errors_alone(const std::function<moejit_error_code()>& call,
                         const std::function<void()>& clean_up, int64_t most_calls = 1000) {
  const int64_t before = allocations();
  ASSERT_EQ(call(), MOEJIT_OK);
  const int64_t all = allocations() - before;
  clean_up();
  ASSERT_GT(all, 10);
  moejit_error_code code = MOEJIT_ERROR_OUT_OF_MEMORY;
  int64_t calls = 0;
  for (; code == MOEJIT_ERROR_OUT_OF_MEMORY; ++calls) {
    fail_allocations_after(calls * std::max<int64_t>(1, all / most_calls));
    code = call();
    fail_no_allocations();
    clean_up();
  }
  EXPECT_TRUE(is_ok(code));
  EXPECT_GT(calls, std::min<int64_t>(all / 2, most_calls / 2));
}

TEST(CApiAllocationFailures, AreErrorsOfALayer) {
  moejit_plan* layer = nullptr;
  expect_errors_alone(
      [&] {
        return moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", nullptr, &layer);
      },
      [&] {
        moejit_plan_destroy(layer);
        layer = nullptr;
      });
}

TEST(CApiAllocationFailures, AreErrorsOfAnOperation) {
  const std::string descriptions[] = {
      R"({"operation": "route", "max_tokens": 64, "top_k": 2, "local_experts": 4})",
      R"({"operation": "activation_backward_quantize", "local_experts": 4,
          "max_permuted_rows": 64, "intermediate": 128, "activation": "clamped_swiglu"})",
      R"({"operation": "grouped_gemm", "local_experts": 4, "max_permuted_rows": 64,
          "n": 256, "k": 256})"};
  for (const std::string& json : descriptions) {
    SCOPED_TRACE(json);
    moejit_plan* operation = nullptr;
    expect_errors_alone(
        [&] { return moejit_plan_create(json.data(), json.size(), "sim", nullptr, &operation); },
        [&] {
          moejit_plan_destroy(operation);
          operation = nullptr;
        });
  }
}

TEST(CApiAllocationFailures, AreErrorsOfAPlanAsJson) {
  moejit_plan* layer = nullptr;
  const char* json = nullptr;
  const auto create = [&] {
    moejit_plan_destroy(layer);
    layer = nullptr;
    ASSERT_TRUE(
        is_ok(moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", nullptr, &layer)));
  };
  create();
  expect_errors_alone([&] { return moejit_plan_get_json(layer, &json); }, create);
  moejit_plan_destroy(layer);
}

// The kernels are in the cache already, whose entries and their metadata are read.
TEST(CApiAllocationFailures, AreErrorsOfAPreparation) {
  SimLayer sim;
  ASSERT_TRUE(is_ok(sim.open()));
  moejit_engine_options options = engine_options();
  options.frozen = 1;
  moejit_plan* layer = nullptr;
  moejit_engine* engine = nullptr;
  const auto open = [&] {
    moejit_plan_destroy(layer);
    moejit_engine_destroy(engine);
    layer = nullptr;
    engine = nullptr;
    ASSERT_TRUE(is_ok(moejit_engine_create(&options, &engine)));
    ASSERT_TRUE(
        is_ok(moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", nullptr, &layer)));
  };
  open();
  expect_errors_alone([&] { return moejit_plan_prepare(layer, engine, sim.device()); }, open);
  moejit_plan_destroy(layer);
  moejit_engine_destroy(engine);
}

// Kernels of the simulator have no tables for unwinding: no exception may pass them.
TEST(CApiAllocationFailures, AreErrorsOfCalls) {
  SimLayer sim;
  ASSERT_TRUE(is_ok(sim.open()));
  const moejit_call call = sim.call();
  ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim.layer(), &call)));
  const auto forward = [&] { return moejit_layer_forward(sim.layer(), &call); };
  expect_errors_alone(
      forward, [] {}, 16);
  ASSERT_TRUE(is_ok(forward()));
  expect_errors_alone(
      [&] { return moejit_layer_backward(sim.layer(), MOEJIT_GRADIENT_OVERWRITE, &call); }, [] {},
      16);
}

// Nor may one leave a thread that the simulator starts.
TEST(CApiAllocationFailures, AreErrorsOfCallsWithThreads) {
  SimLayer sim;
  ASSERT_TRUE(is_ok(sim.open(kTinyLayer, kSimTokens, 4)));
  const moejit_call call = sim.call();
  ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim.layer(), &call)));
  bool has_failed = false;
  for (int64_t count = 0; count < 12; ++count) {
    fail_allocations_of_new_threads_after(count);
    const moejit_error_code code = moejit_layer_forward(sim.layer(), &call);
    fail_no_allocations();
    EXPECT_TRUE(code == MOEJIT_OK || code == MOEJIT_ERROR_OUT_OF_MEMORY) << code;
    has_failed |= code != MOEJIT_OK;
  }
  EXPECT_TRUE(has_failed);
  EXPECT_TRUE(is_ok(moejit_layer_forward(sim.layer(), &call)));
}

// What a library exchanges with its compile worker.
TEST(CApiAllocationFailures, AreExceptionsOfMessages) {
  const compiler::KernelSource source{.entry = "f", .text = "text", .target = {}};
  const auto exchange = [&] {
    try {
      compiler::CompiledKernel kernel{
          .binary = {.entry = "f", .target = {}, .bytes = {std::byte{1}}, .usage = {}},
          .time = {},
          .loss = Error{Stage::kCompile, ErrorCode::kCompileFailed, "spills", "a hint", "a log"}};
      kernel.binary.usage.emplace();
      const auto read = compiler::decode_reply(compiler::encode_reply(kernel), source);
      const auto request =
          compiler::decode_request(compiler::encode_request({.source = source, .key = {}}));
      return read && request ? MOEJIT_OK : MOEJIT_ERROR_INTERNAL;
    } catch (const std::bad_alloc&) {
      return MOEJIT_ERROR_OUT_OF_MEMORY;
    }
  };
  expect_errors_alone(exchange, [] {});
}

}  // namespace
}  // namespace moejit::testing
