// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/driver_api.h"

#include "runtime/device.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

class DriverApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("MOEJIT_CUDA_DRIVER")) before_ = value;
  }
  void TearDown() override {
    ::unsetenv("MOEJIT_CUDA_DRIVER");
    if (!before_.empty()) ::setenv("MOEJIT_CUDA_DRIVER", before_.c_str(), 1);
  }
  std::string before_;
};

TEST_F(DriverApiTest, SaysWhichLibraryItTriedAndWhatWorksWithoutOne) {
  ::setenv("MOEJIT_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
  const auto device = open_cuda_device();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kDriverMissing);
  EXPECT_EQ(device.error().message, "no CUDA driver library found, tried /nowhere/libcuda.so.1");
  EXPECT_EQ(device.error().hint,
            "install the NVIDIA driver, or open the simulator instead: "
            "moejit_device_open_simulator(), in C++ open_simulator()");
}

TEST_F(DriverApiTest, NamesTheFunctionThatALibraryLacks) {
  ::setenv("MOEJIT_CUDA_DRIVER", "libc.so.6", 1);
  const auto api = driver_api();
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, ErrorCode::kDriverMissing);
  EXPECT_EQ(api.error().message,
            "the CUDA driver library libc.so.6 has no function cuInit, wanted one of CUDA 12.0 or "
            "later (the function came with 2.0)");
}

TEST(CudaVersion, IsPrintedAsPeopleWriteIt) {
  EXPECT_EQ(cuda_version_text(12040), "12.4");
  EXPECT_EQ(cuda_version_text(13000), "13.0");
}

}  // namespace
}  // namespace moejit::runtime
