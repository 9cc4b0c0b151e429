// SPDX-License-Identifier: Apache-2.0
// Calls that a device records, to be launched again.
#include "tests/driver/driver_fixture.h"
#include "tests/driver/driver_layer.h"

namespace moejit::testing {
namespace {

class RecordingTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    device_ = open();
    engine_ = make_engine();
    layer_ = make_layer(*engine_, *device_);
  }
  void TearDown() override {
    layer_.reset();
    device_.reset();
    DriverTest::TearDown();
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
  std::unique_ptr<DriverLayer> layer_;
};

TEST_F(RecordingTest, RunsAsOftenAsItIsLaunchedAndNotBefore) {
  const auto recording =
      device_->record([&](runtime::Stream stream) { return layer_->run_all(stream); });
  ASSERT_TRUE(succeeded(recording));
  EXPECT_EQ(cuda()->launches, 0);
  for (int replay = 0; replay < 3; ++replay) EXPECT_TRUE(succeeded((*recording)->launch(nullptr)));
  EXPECT_EQ(cuda()->launches, 3 * layer_->launches());
}

TEST_F(RecordingTest, KeepsItsKernelsLoaded) {
  const auto recording =
      device_->record([&](runtime::Stream stream) { return layer_->run_all(stream); });
  ASSERT_TRUE(succeeded(recording));
  layer_.reset();
  EXPECT_TRUE(succeeded((*recording)->launch(nullptr)));
  EXPECT_EQ(cuda()->launched_unloaded, 0);
}

TEST_F(RecordingTest, ReturnsTheErrorOfWhatWasToBeRecordedAndLeavesNoCapture) {
  const auto recording = device_->record([&](runtime::Stream) -> Result<void> {
    return fail(Stage::kLaunch, ErrorCode::kInvalidValue, "no");
  });
  ASSERT_FALSE(recording);
  EXPECT_EQ(recording.error().message, "no");
  EXPECT_TRUE(succeeded(layer_->run_all(nullptr)));  // the legacy stream cannot while one captures
  EXPECT_TRUE(
      succeeded(device_->record([&](runtime::Stream stream) { return layer_->run_all(stream); })));
}

}  // namespace
}  // namespace moejit::testing
