// SPDX-License-Identifier: Apache-2.0
//
// Where tensor copies put their bytes, against a plain loop over the box.

#include "tests/sim/support/matrices.h"
#include "tests/sim/support/sim_kernel.h"

#include <numeric>

namespace moejit::runtime {
namespace {

using compiler::DType;
using compiler::TensorBox;

std::vector<std::byte> counting_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(1 + i % 251);
  return bytes;
}

// Loads the box at (x, y) to a place in shared memory and writes out the words from there on.
constexpr const char* kLoad = R"(
struct Params {
  const void* input;
  const int32_t* what;  // x, y, place, words
  uint32_t* output;
  TensorMap map;
};
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const Mbarrier full = shared<uint64_t>(0);
  const int32_t t = thread_index();
  const auto what = global(params.what);
  const int32_t words = load(what + 3);
  const auto place = shared<uint32_t>(static_cast<uint32_t>(load(what + 2)));
  if (t == 0) {
    init_mbarrier(full, 1);
    fence_mbarrier_init();
  }
  sync_cta();
  if (t == 32) {
    arrive_expecting(full, 4 * words);
    load_tensor_2d(place, params.map, full, load(what), load(what + 1));
  }
  wait(full, 0);
  for (int32_t i = t; i < words; i += 64) store(global(params.output) + i, load(place + i));
}
)";

struct Load {
  TensorBox box;
  int32_t x = 0;
  int32_t y = 0;
  int32_t at = 1024;
};

std::size_t row_bytes(const TensorBox& box) {
  return static_cast<std::size_t>(box.box[0] * compiler::size_bytes(box.dtype));
}

// The bytes of shared memory from the box's place on, by the definition of box and swizzle.
std::vector<std::byte> wanted_bytes(const Load& load, const std::vector<std::byte>& input) {
  const int64_t element_bytes = compiler::size_bytes(load.box.dtype);
  const std::size_t pitch = row_bytes(load.box);
  std::vector<std::byte> wanted(pitch * static_cast<std::size_t>(load.box.box[1]));
  for (std::size_t place = 0; place < wanted.size(); ++place) {
    const std::size_t chunk_of_pattern = place / 128 % 8;
    const std::size_t linear = load.box.is_swizzled ? place ^ chunk_of_pattern * 16 : place;
    const auto x = load.x + static_cast<int64_t>(linear % pitch) / element_bytes;
    const auto y = load.y + static_cast<int64_t>(linear / pitch);
    if (x < 0 || x >= load.box.dims[0] || y < 0 || y >= load.box.dims[1]) continue;
    const int64_t byte = static_cast<int64_t>(linear) % element_bytes;
    wanted[place] =
        input[static_cast<std::size_t>(y * load.box.strides_bytes[0] + x * element_bytes + byte)];
  }
  return wanted;
}

void expect_loaded(const Load& load) {
  const auto input =
      counting_bytes(static_cast<std::size_t>(load.box.strides_bytes[0] * load.box.dims[1]));
  const std::vector<std::byte> wanted = wanted_bytes(load, input);
  const std::vector<int32_t> what{load.x, load.y, load.at, static_cast<int32_t>(wanted.size() / 4)};
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::vector<SimBuffer> buffers{{"input", input, false},
                                   buffer_of("what", what, false),
                                   {"output", std::vector<std::byte>(wanted.size()), true, false}};
    const auto result = run_test_kernel(
        kLoad, {.threads = 64, .shared_bytes = 48 * 1024, .seed = seed, .maps = {{0, load.box}}},
        buffers);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    ASSERT_EQ(buffers[2].bytes, wanted);
  }
}

TEST(SimulatedTensorMaps, AreOfBoxesThatTheHardwareTakes) {
  const auto device = open_simulator();
  ASSERT_TRUE(device.has_value());
  alignas(256) static char memory[256];
  TensorBox box = box_of(DType::kU8, 256, 40, 48, 10, false);
  EXPECT_TRUE((*device)->encode_tensor_map(box, memory).has_value());
  box.dims[0] = 0;
  EXPECT_FALSE((*device)->encode_tensor_map(box, memory).has_value());
}

TEST(SimulatedTensorLoads, PutRowAfterRow) {
  expect_loaded({.box = box_of(DType::kU8, 256, 40, 48, 10, false), .x = 32, .y = 3});
  expect_loaded({.box = box_of(DType::kF32, 64, 8, 64, 8, false)});
}

TEST(SimulatedTensorLoads, SwizzleByTheAddress) {
  expect_loaded({.box = box_of(DType::kU8, 256, 64, 128, 64, true), .x = 128});
  expect_loaded({.box = box_of(DType::kBF16, 128, 40, 64, 20, true), .y = 7, .at = 3072});
  // Rows of half a pattern: two of them are one row of it.
  expect_loaded({.box = box_of(DType::kU8, 64, 32, 64, 32, true)});
}

TEST(SimulatedTensorLoads, FillWithZerosOutsideOfTheTensor) {
  TensorBox box = box_of(DType::kU8, 112, 20, 64, 16, false);
  box.dims[0] = 100;  // ends within a chunk of 16 bytes; rows are 112 bytes apart
  for (const int32_t x : {-70, -64, -17, 0, 60, 99, 100}) {
    for (const int32_t y : {-20, -3, 10, 30}) expect_loaded({.box = box, .x = x, .y = y});
  }
  box.is_swizzled = true;
  expect_loaded({.box = box, .x = 70, .y = 12});
}

// Copies 48 bytes from byte 32 on to a place that is aligned to 16 bytes alone.
constexpr const char* kLoadBulk = R"(
struct Params {
  const uint32_t* input;
  uint32_t* output;
};
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const Mbarrier full = shared<uint64_t>(0);
  const auto place = shared<uint32_t>(1040);
  if (thread_index() == 0) {
    init_mbarrier(full, 1);
    fence_mbarrier_init();
  }
  sync_cta();
  if (thread_index() == 32) {
    arrive_expecting(full, 48);
    load_bulk(as<Bytes16>(place), as<const Bytes16>(global(params.input) + 8), 48, full);
  }
  wait(full, 0);
  if (thread_index() < 12) {
    store(global(params.output) + thread_index(), load(place + thread_index()));
  }
}
)";

TEST(SimulatedBulkLoads, PutBytesThatFollowEachOther) {
  std::vector<uint32_t> input(24);
  std::iota(input.begin(), input.end(), 100U);
  std::vector<uint32_t> wanted(12);
  std::iota(wanted.begin(), wanted.end(), 108U);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<SimBuffer> buffers{buffer_of("input", input),
                                   buffer_of("output", std::vector<uint32_t>(12))};
    const auto result =
        run_test_kernel(kLoadBulk, {.threads = 64, .shared_bytes = 2048, .seed = seed}, buffers);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    ASSERT_EQ(values_of<uint32_t>(buffers[1]), wanted);
  }
}

// Two boxes of bytes that were written go out at (x, y, z); one is partly outside.
constexpr const char* kStore = R"(
struct Params {
  uint32_t* output;
  TensorMap map;
};
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  for (int32_t i = t; i < 2 * 1024 / 4; i += 64) {
    store(shared<uint32_t>(1024) + i, static_cast<uint32_t>(1 + i));
  }
  fence_proxy_async();
  sync_cta();
  if (t == 0) {
    store_tensor_3d(params.map, shared<uint32_t>(1024), 8, 4, 0);
    commit_tensor_stores();
    store_tensor_3d(params.map, shared<uint32_t>(2048), 24, -1, 1);
    commit_tensor_stores();
    wait_tensor_stores_read<1>();
    wait_tensor_stores<0>();
  }
}
)";

TEST(SimulatedTensorStores, WriteOnlyWhatIsInside) {
  constexpr std::size_t kColumns = 40;
  constexpr std::size_t kRows = 9;
  // Boxes of 32 columns, 4 rows and 2 planes of words: 1 KiB each.
  const TensorBox box{.dtype = DType::kU32,
                      .rank = 3,
                      .dims = {kColumns, kRows, 2},
                      .strides_bytes = {4 * kColumns, 4 * kColumns * kRows},
                      .box = {32, 4, 2},
                      .is_swizzled = true};
  std::vector<uint32_t> wanted(kColumns * kRows * 2);
  for (std::size_t which = 0; which < 2; ++which) {
    for (std::size_t word = 0; word < 256; ++word) {
      const int64_t x = static_cast<int64_t>(word % 32) + (which == 0 ? 8 : 24);
      const int64_t y = static_cast<int64_t>(word / 32 % 4) + (which == 0 ? 4 : -1);
      const int64_t z = static_cast<int64_t>(word / 128) + (which == 0 ? 0 : 1);
      if (x >= 40 || y < 0 || y >= 9 || z >= 2) continue;
      const std::size_t place = word ^ (word / 32 % 8) * 4;  // 16-byte chunks are swizzled
      wanted[static_cast<std::size_t>((z * 9 + y) * 40 + x)] =
          static_cast<uint32_t>(1 + 256 * which + place);
    }
  }
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<SimBuffer> buffers{buffer_of("output", std::vector<uint32_t>(wanted.size()))};
    const auto result = run_test_kernel(
        kStore, {.threads = 64, .shared_bytes = 4096, .seed = seed, .maps = {{0, box}}}, buffers);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    ASSERT_EQ(values_of<uint32_t>(buffers[0]), wanted);
  }
}

// Boxes of 8 columns and 4 rows of one plane of four dimensions, whose rows lie between those of
// the other plane; the second box ends with the rows.
constexpr const char* kStoreFourDimensions = R"(
struct Params {
  uint32_t* output;
  TensorMap map;
};
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  store(shared<uint32_t>(1024) + t, static_cast<uint32_t>(1 + t));
  fence_proxy_async();
  sync_cta();
  if (t == 0) {
    store_tensor_4d(params.map, shared<uint32_t>(1024), 0, 1, 0, 0);
    store_tensor_4d(params.map, shared<uint32_t>(1024), 0, 0, 2, 1);
    commit_tensor_stores();
    wait_tensor_stores<0>();
  }
}
)";

TEST(SimulatedTensorStores, TakeFourDimensions) {
  constexpr std::size_t kColumns = 8, kPlanes = 2, kRows = 5, kMatrices = 2;
  const TensorBox box{.dtype = DType::kU32,
                      .rank = 4,
                      .dims = {kColumns, kPlanes, kRows, kMatrices},
                      .strides_bytes = {32, 32 * kPlanes, 32 * kPlanes * kRows},
                      .box = {8, 1, 4, 1}};
  std::vector<uint32_t> wanted(kColumns * kPlanes * kRows * kMatrices);
  for (std::size_t word = 0; word < 32; ++word) {
    const std::size_t row = word / 8, column = word % 8;
    wanted[(row * kPlanes + 1) * kColumns + column] = static_cast<uint32_t>(1 + word);
    if (row + 2 >= kRows) continue;
    wanted[((kRows + row + 2) * kPlanes) * kColumns + column] = static_cast<uint32_t>(1 + word);
  }
  std::vector<SimBuffer> buffers{buffer_of("output", std::vector<uint32_t>(wanted.size()))};
  const auto result = run_test_kernel(
      kStoreFourDimensions, {.threads = 32, .shared_bytes = 4096, .maps = {{0, box}}}, buffers);
  ASSERT_TRUE(result.has_value()) << to_string(result.error());
  EXPECT_EQ(values_of<uint32_t>(buffers[0]), wanted);
}

// A box of fp32 numbers is added to what is there, at columns 24 to 55 of 40.
constexpr const char* kAdd = R"(
struct Params {
  float* output;
  TensorMap map;
};
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  for (int32_t i = t; i < 4 * 32; i += 32) {
    store(shared<float>(1024) + i, 0.5f * static_cast<float>(i));
  }
  fence_proxy_async();
  sync_cta();
  if (t == 0) {
    add_tensor_3d(params.map, shared<float>(1024), 24, 0, 0);
    commit_tensor_stores();
    wait_tensor_stores<0>();
  }
}
)";

TEST(SimulatedTensorStores, AddToWhatIsThere) {
  const TensorBox box{.dtype = DType::kF32,
                      .rank = 3,
                      .dims = {40, 4, 1},
                      .strides_bytes = {160, 640},
                      .box = {32, 4, 1}};
  std::vector<float> old(160);
  for (std::size_t i = 0; i < old.size(); ++i) old[i] = static_cast<float>(i);
  std::vector<float> wanted = old;
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t x = 24; x < 40; ++x) {
      wanted[40 * row + x] += 0.5f * static_cast<float>(32 * row + x - 24);
    }
  }
  std::vector<SimBuffer> buffers{buffer_of("output", old)};
  const auto result =
      run_test_kernel(kAdd, {.threads = 32, .shared_bytes = 4096, .maps = {{0, box}}}, buffers);
  ASSERT_TRUE(result.has_value()) << to_string(result.error());
  EXPECT_EQ(values_of<float>(buffers[0]), wanted);
}

}  // namespace
}  // namespace moejit::runtime
