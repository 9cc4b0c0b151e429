// SPDX-License-Identifier: Apache-2.0
// Every call of the driver fails once: an error each time, and nothing is left behind.
#include "tests/driver/driver_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

class FailuresTest : public DriverTest {
 protected:
  // All that a host does with one GPU, once.
  Result<void> session() {
    MOEJIT_TRY_ASSIGN(const auto device, runtime::open_cuda_device());
    MOEJIT_TRY_ASSIGN(const auto layer, DriverLayer::create(*engine_, *device, *nvrtc(), {}));
    MOEJIT_TRY(layer->run_all());
    return device->synchronize(nullptr);
  }
  // Calls that undo something: where one of them fails, it stays as it is.
  static bool undoes(CudaCall call) {
    return call == CudaCall::library_unload || call == CudaCall::primary_ctx_release ||
           call == CudaCall::ctx_pop_current || call == CudaCall::ctx_synchronize;
  }
  // Clears the records of what happened, and makes the call of this number fail.
  void fail_at(int64_t number, CUresult result, bool is_sticky = false) {
    forget();
    cuda()->fail_at = number;
    cuda()->fail_with = result;
    cuda()->is_failure_sticky = is_sticky ? 1 : 0;
  }
  // Also a context that could not be popped or released.
  void forget() {
    cuda()->fail_at = 0;
    while (api().primary_ctx_release(0) == CUDA_SUCCESS) continue;
    for (CUcontext popped = nullptr; current_context() != nullptr;)
      EXPECT_EQ(api().ctx_pop_current(&popped), CUDA_SUCCESS);
    SetUp();
  }
  int64_t calls_of_a_session() {
    EXPECT_TRUE(succeeded(runtime::driver_api()));
    EXPECT_TRUE(succeeded(session()));  // compiles
    SetUp();
    EXPECT_TRUE(succeeded(session()));
    return cuda()->calls;
  }
  std::unique_ptr<runtime::Engine> engine_ = make_engine();
};

TEST_F(FailuresTest, EachIsAnErrorOfItsOwnAndLeavesNothingLoadedOrRetained) {
  const int64_t calls = calls_of_a_session();
  EXPECT_GT(calls, 100);
  const std::pair<CUresult, ErrorCode> failures[] = {
      {CUDA_ERROR_OUT_OF_MEMORY, ErrorCode::kOutOfMemory},
      {CUDA_ERROR_UNKNOWN, ErrorCode::kDriver},
      {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ErrorCode::kStreamCapture}};
  for (const auto& [result, code] : failures) {
    for (int64_t number = 1; number <= calls; ++number) {
      fail_at(number, result);
      const auto failed = session();
      // Calls at the end, and those that nothing depends on, fail unheard.
      if (!failed) {
        EXPECT_EQ(failed.error().code, code) << number << ": " << to_string(failed.error());
        EXPECT_NE(failed.error().message.find(" failed with CUDA_ERROR_"), std::string::npos);
      }
      const FakeCudaControl& seen = *cuda();
      if (!failed && !undoes(static_cast<CudaCall>(seen.failed.load() - 1))) {
        EXPECT_EQ(seen.libraries_loaded, seen.libraries_unloaded) << number << " of " << calls;
        EXPECT_EQ(seen.primaries_retained, seen.primaries_released) << number << " of " << calls;
        EXPECT_EQ(seen.pushed, seen.popped) << number << " of " << calls;
      }
      EXPECT_EQ(seen.launched_unloaded, 0);
    }
  }
  forget();
}

TEST_F(FailuresTest, ALostContextIsTheSameErrorUntilTheEnd) {
  const int64_t calls = calls_of_a_session();
  for (int64_t number = 1; number <= calls; number += 7) {
    fail_at(number, CUDA_ERROR_ILLEGAL_ADDRESS, true);
    if (const auto failed = session(); !failed) {
      EXPECT_EQ(failed.error().code, ErrorCode::kDriver);
      EXPECT_NE(failed.error().hint.find("the context is lost"), std::string::npos);
    }
    EXPECT_EQ(cuda()->unloaded_in_flight, 0);
  }
  forget();
}

TEST_F(FailuresTest, AfterATransientFailureTheSameCallSucceeds) {
  const auto device = open();
  const auto layer = make_layer(*engine_, *device);
  cuda()->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
  cuda()->fail_at = cuda()->calls + 3;
  EXPECT_FALSE(layer->forward());
  EXPECT_TRUE(succeeded(layer->forward()));
}

TEST_F(FailuresTest, AChildOfForkGetsAnErrorAndEndsWell) {
  const auto device = open();
  auto layer = make_layer(*engine_, *device);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto launched = layer->forward();
    const bool is_told = !launched && launched.error().code == ErrorCode::kDriver &&
                         launched.error().hint.find("fork()") != std::string::npos;
    const bool opens = runtime::open_cuda_device().has_value();
    layer->destroy();
    ::_exit(is_told && !opens ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(succeeded(layer->run_all()));
}

}  // namespace
}  // namespace moejit::testing
