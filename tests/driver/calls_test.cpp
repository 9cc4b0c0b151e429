// SPDX-License-Identifier: Apache-2.0
// What a call of a layer asks of the host: which functions of the driver it calls, and that it
// allocates nothing.
#include "tests/driver/driver_fixture.h"
#include "tests/unit/c_api/counted_malloc.h"

#include <functional>
#include <map>

namespace moejit::testing {
namespace {

using Counts = std::map<std::string_view, int64_t>;

constexpr std::array kNames = {
#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) std::string_view(#name),
#include "runtime/driver/driver_functions.inc"
#undef MOEJIT_DRIVER_FUNCTION
};

class CallsTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    engine_ = make_engine();
    device_ = open();
    layer_ = make_layer(*engine_, *device_);
    tensors_ = layer_->tensors();
    ASSERT_TRUE(succeeded(layer_->run_all()));  // maps tensors
  }
  void TearDown() override {
    layer_.reset();
    device_.reset();
    DriverTest::TearDown();
  }
  // Returns how often something calls which functions of the driver.
  static Counts calls_of_driver(const std::function<void()>& work) {
    std::array<int64_t, kNames.size()> before{};
    for (std::size_t i = 0; i < kNames.size(); ++i) before[i] = cuda()->calls_of[i];
    work();
    Counts counts;
    for (std::size_t i = 0; i < kNames.size(); ++i)
      if (const int64_t more = cuda()->calls_of[i] - before[i]; more > 0) counts[kNames[i]] = more;
    return counts;
  }
  // Makes each of the calls of a step, and returns whether all succeeded.
  bool step() {
    runtime::PreparedPlan& layer = layer_->prepared();
    bool is_done = layer.call("update_weights", tensors_, {}, nullptr).has_value();
    is_done &= layer.call("forward", tensors_, layer_->memory(), nullptr).has_value();
    for (const char* const call : {"backward", "backward+add"})
      is_done &= layer.call(call, tensors_, layer_->memory(), nullptr).has_value();
    return is_done;
  }

  std::unique_ptr<runtime::Engine> engine_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<DriverLayer> layer_;
  std::vector<runtime::TensorRef> tensors_;
};

TEST_F(CallsTest, WaitForNothingAndAllocateNothingOfTheGpu) {
  bool is_done = false;
  EXPECT_EQ(calls_of_driver([&] { is_done = step(); }),
            (Counts{{"cuCtxGetCurrent", 4},
                    {"cuCtxPushCurrent", 4},
                    {"cuCtxPopCurrent", 4},
                    {"cuStreamIsCapturing", 4},
                    {"cuLaunchKernelEx", layer_->launches()}}));
  EXPECT_TRUE(is_done);
}

TEST_F(CallsTest, AllocateNothingOnTheHost) {
  ASSERT_TRUE(step());
  const int64_t before = allocations();
  const bool is_done = step();
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_TRUE(is_done);
}

}  // namespace
}  // namespace moejit::testing
