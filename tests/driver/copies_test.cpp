// SPDX-License-Identifier: Apache-2.0
// Copies between host and device. The fake driver's device memory is the host's, so a test sees
// there what a kernel on any stream would.
#include "runtime/driver/driver_api.h"
#include "tests/driver/driver_fixture.h"

#include <array>

namespace moejit::testing {
namespace {

using Bytes = std::array<unsigned char, 4>;

class CopiesTest : public DriverTest {};

// The driver's own copy from pageable memory returns earlier.
TEST_F(CopiesTest, HaveArrivedWhenTheyReturn) {
  const auto device = open();
  const auto memory = device->allocate(4);
  ASSERT_TRUE(succeeded(memory));
  ASSERT_TRUE(succeeded(device->fill(*memory, std::byte{0xcd}, 4, nullptr)));
  const Bytes given{1, 2, 3, 4};
  ASSERT_TRUE(succeeded(device->copy_to_device(*memory, given.data(), 4)));
  EXPECT_EQ(std::memcmp(*memory, given.data(), 4), 0);
  Bytes got{};
  ASSERT_TRUE(succeeded(device->copy_to_host(got.data(), *memory, 4)));
  EXPECT_EQ(got, given);
  device->release(*memory);
}

TEST_F(CopiesTest, OfNothingCallNothing) {
  const auto device = open();
  EXPECT_TRUE(succeeded(device->copy_to_device(nullptr, nullptr, 0)));
  EXPECT_TRUE(succeeded(device->copy_to_host(nullptr, nullptr, 0)));
  EXPECT_EQ(calls_of(CudaCall::memcpy_htod), 0);
  EXPECT_EQ(calls_of(CudaCall::memcpy_dtoh), 0);
  EXPECT_EQ(calls_of(CudaCall::stream_synchronize), 0);
}

}  // namespace
}  // namespace moejit::testing
