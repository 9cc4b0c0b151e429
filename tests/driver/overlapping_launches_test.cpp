// SPDX-License-Identifier: Apache-2.0
// Which launches the driver is told to overlap.
#include "tests/driver/driver_fixture.h"

#include <cstdlib>

namespace moejit::testing {
namespace {

class OverlappingLaunchesTest : public DriverTest {
 protected:
  // Returns how many launches of a forward call, recorded or not, may overlap with the one before.
  int64_t overlapping(bool has_backward = false, bool is_recorded = false) {
    const CUcontext context = create_context(0);
    {
      const auto device = open();
      const auto engine = make_engine();
      const auto layer = make_layer(*engine, *device, {.has_backward = has_backward});
      EXPECT_TRUE(succeeded(layer->update_weights()));
      EXPECT_EQ(cuda()->launches_overlapping, 0);
      CUstream stream = nullptr;
      EXPECT_EQ(api().stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      CUgraph graph = nullptr;
      if (is_recorded) {
        EXPECT_EQ(api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
      }
      EXPECT_TRUE(succeeded(layer->forward(stream)));
      if (is_recorded) {
        EXPECT_EQ(api().stream_end_capture(stream, &graph), CUDA_SUCCESS);
        EXPECT_EQ(api().graph_destroy(graph), CUDA_SUCCESS);
      }
    }
    destroy_context(context);
    return cuda()->launches_overlapping;
  }
};

// route_quantize_permute_pad, gemm_fc1, activation_quantize, gemm_fc2, unpermute: the first waits
// for all that is on the stream.
TEST_F(OverlappingLaunchesTest, AreAllOfASmallForwardCallButTheFirst) {
  EXPECT_EQ(overlapping(), 4);
}

TEST_F(OverlappingLaunchesTest, AreNoneOfALayerThatTrains) { EXPECT_EQ(overlapping(true), 0); }

TEST_F(OverlappingLaunchesTest, AreNoneWhereTheEnvironmentSaysSo) {
  ::setenv("MOEJIT_SERIAL_LAUNCHES", "1", 1);
  EXPECT_EQ(overlapping(), 0);
  ::unsetenv("MOEJIT_SERIAL_LAUNCHES");
}

TEST_F(OverlappingLaunchesTest, AreRecordedIntoGraphs) {
  cuda()->driver_version = 12030;
  EXPECT_EQ(overlapping(false, true), 4);
}

TEST_F(OverlappingLaunchesTest, AreNotRecordedByDriversWhoseGraphsLackThem) {
  cuda()->driver_version = 12020;
  EXPECT_EQ(overlapping(false, true), 0);
}

}  // namespace
}  // namespace moejit::testing
