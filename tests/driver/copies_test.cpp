// SPDX-License-Identifier: Apache-2.0
// Copies between host and device, and the maps of tensor copies. The fake driver's device memory is
// the host's, so a test sees there what a kernel on any stream would.
#include "tests/driver/driver_fixture.h"

#include <array>
#include <cstring>
#include <utility>

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

TEST_F(CopiesTest, FailWhereTheCopyOrTheWaitForItDoes) {
  const CUcontext own = create_context(0);  // so that none has to be pushed and popped
  {
    const auto device = open();
    const auto memory = device->allocate(4);
    ASSERT_TRUE(succeeded(memory));
    const Bytes given{1, 2, 3, 4};
    const int64_t before = cuda()->calls;
    ASSERT_TRUE(succeeded(device->copy_to_device(*memory, given.data(), 4)));
    const int64_t calls = cuda()->calls - before;
    EXPECT_EQ(calls, 3);  // asks for the context, copies, waits
    for (int64_t number = 1; number <= calls; ++number) {
      cuda()->fail_with = CUDA_ERROR_LAUNCH_FAILED;
      cuda()->fail_at = cuda()->calls + number;
      const auto copied = device->copy_to_device(*memory, given.data(), 4);
      cuda()->fail_at = 0;
      ASSERT_FALSE(copied) << number;
      EXPECT_EQ(copied.error().code, ErrorCode::kDriver);
    }
    device->release(*memory);
  }
  destroy_context(own);
}

// The fake driver's maps have the address, then the CUtensorMapL2promotion.
TEST_F(CopiesTest, OfTensorsFillL2AsTheirBoxSays) {
  constexpr uint64_t kL2Of128Bytes = 2, kL2Of256Bytes = 3;
  const auto device = open();
  alignas(16) std::array<unsigned char, 256> memory{};
  compiler::TensorBox box{.dims = {16, 16}, .strides_bytes = {16}, .box = {16, 16}};
  for (const auto& [bytes, promotion] :
       {std::pair(128, kL2Of128Bytes), std::pair(256, kL2Of256Bytes)}) {
    box.l2_promotion = bytes;
    const auto map = device->encode_tensor_map(box, memory.data());
    ASSERT_TRUE(succeeded(map));
    std::array<uint64_t, 2> words{};
    std::memcpy(words.data(), &*map, sizeof(words));
    EXPECT_EQ(words[0], reinterpret_cast<uint64_t>(memory.data()));
    EXPECT_EQ(words[1], promotion) << bytes;
  }
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
