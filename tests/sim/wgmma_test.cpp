// SPDX-License-Identifier: Apache-2.0
//
// What WGMMA computes from operands that tensor copies brought, against plain loops on the host.

#include "runtime/reference/tensor_core.h"
#include "tests/sim/support/matrices.h"
#include "tests/sim/support/sim_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

namespace moejit::runtime {
namespace {

// D[64, 128] = A[64, 128 bytes] * B[128, 128 bytes]^T of the CTA's rows of A; D leaves through
// shared memory by one store of 64 x 32 floats at a time.
constexpr const char* kOneTile = R"(
constexpr uint32_t kA = 0;
constexpr uint32_t kB = 64 * 128;
constexpr uint32_t kD = kB + 128 * 128;
constexpr uint32_t kBarrier = kD + 4 * 64 * 128;

struct Params {
  const void* a;
  const void* b;
  void* d;
  TensorMap a_map;
  TensorMap b_map;
  TensorMap d_map;
};

MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  const Mbarrier full = shared<uint64_t>(kBarrier);
  const int32_t t = thread_index();
  if (t == 0) {
    prefetch_tensor_map(params.a_map);
    init_mbarrier(full, 1);
    fence_mbarrier_init();
  }
  sync_cta();
  if (t == 0) {
    arrive_expecting(full, (64 + 128) * 128);
    LOAD
  }
  wait(full, 0);
  WgmmaSum<128> sum;
  wgmma_fence(sum);
  MULTIPLY
  wgmma_commit();
  wgmma_wait<0>(sum);
  const int32_t row = 16 * warp_index() + lane_index() / 4;
  for (int32_t i = 0; i < 64; ++i) {
    const int32_t r = row + 8 * (i % 4 / 2);
    const int32_t column = 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2;
    const uint32_t byte = 8192 * (column / 32) + 128 * r + 4 * (column % 32);
    store(shared<float>(kD + (byte ^ (byte >> 7 & 7) << 4)), sum(i));
  }
  fence_proxy_async();
  sync_cta();
  if (t == 0) {
    for (int32_t i = 0; i < 4; ++i) {
      store_tensor_2d(params.d_map, shared<float>(kD + 8192 * i), 32 * i, 64 * cta_index());
    }
    commit_tensor_stores();
    wait_tensor_stores_read<0>();
  }
}
)";

constexpr const char* kKMajor = R"(
#define LOAD                                                                            \
  load_tensor_2d(shared<Bytes16>(kA), params.a_map, full, 0, 64 * cta_index());         \
  load_tensor_2d<CachePolicy::kEvictLast>(shared<Bytes16>(kB), params.b_map, full, 0, 0);
#define MULTIPLY                                                     \
  const auto a = matrix_descriptor(shared<Bytes16>(kA));             \
  const auto b = matrix_descriptor(shared<Bytes16>(kB));             \
  for (int32_t k = 0; k < 4; ++k) INSTRUCTION(sum, a + 32 * k, b + 32 * k, k > 0);
)";

// The same of A [64 k, 128] and B [64 k, 128]: rows are the contraction. Boxes have 64 columns.
constexpr const char* kMnMajor = R"(
#define LOAD                                                                    \
  load_tensor_2d(shared<Bytes16>(kA), params.a_map, full, 64 * cta_index(), 0); \
  load_tensor_2d(shared<Bytes16>(kB), params.b_map, full, 0, 0);                \
  load_tensor_2d(shared<Bytes16>(kB + 8192), params.b_map, full, 64, 0);
#define MULTIPLY                                                              \
  wgmma_steps_bf16<Major::kMn, Major::kMn>(                                   \
      sum, mn_major_descriptor(shared<Bytes16>(kA)),                          \
      mn_major_descriptor(shared<Bytes16>(kB)), false);
)";

// And with A as in the first and B as in the second.
constexpr const char* kMixed = R"(
#define LOAD                                                                    \
  load_tensor_2d(shared<Bytes16>(kA), params.a_map, full, 0, 64 * cta_index()); \
  load_tensor_2d(shared<Bytes16>(kB), params.b_map, full, 0, 0);                \
  load_tensor_2d(shared<Bytes16>(kB + 8192), params.b_map, full, 64, 0);
#define MULTIPLY                                                              \
  wgmma_steps_bf16<Major::kK, Major::kMn>(                                    \
      sum, matrix_descriptor(shared<Bytes16>(kA)),                            \
      mn_major_descriptor(shared<Bytes16>(kB)), false);
)";

struct Tile {
  std::string multiply = "wgmma_e4m3";  // the instruction
  compiler::DType dtype = compiler::DType::kF8E4M3;
  std::size_t unwritten_rows = 0;  // at the end of A
};

// Runs the kernel on 128 rows of A, half of them in each of two CTAs, and gives D [128, 128]. Rows
// of both matrices are 128 bytes.
std::vector<float> run_tile(const Tile& tile, const std::vector<std::byte>& a,
                            const std::vector<std::byte>& b, uint64_t seed) {
  std::vector<SimBuffer> buffers{{"a", a, false, true, 128 * tile.unwritten_rows},
                                 {"b", b, false},
                                 buffer_of("d", std::vector<float>(128 * 128))};
  buffers[2].written = false;
  const auto columns = static_cast<int32_t>(128 / compiler::size_bytes(tile.dtype));
  const auto result =
      run_test_kernel("#define INSTRUCTION " + tile.multiply + "\n" + kKMajor + kOneTile,
                      {.ctas = 2,
                       .threads = 128,
                       .shared_bytes = 64 * 1024,
                       .seed = seed,
                       .maps = {{0, box_of(tile.dtype, columns, 128, columns, 64, true)},
                                {1, box_of(tile.dtype, columns, 128, columns, 128, true)},
                                {2, box_of(compiler::DType::kF32, 128, 128, 32, 64, true)}}},
                      buffers);
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return values_of<float>(buffers[2]);
}

std::vector<float> run_tile(const Tile& tile, const Matrix& a, const Matrix& b, uint64_t seed) {
  return run_tile(tile, encoded(a, tile.dtype), encoded(b, tile.dtype), seed);
}

std::vector<std::byte> random_bytes(std::size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

reference::TensorCoreNumbers numbers(const std::vector<std::byte>& bytes, compiler::DType dtype) {
  const auto* codes = reinterpret_cast<const uint8_t*>(bytes.data());
  if (dtype == compiler::DType::kF8E4M3)
    return {std::span(codes, bytes.size()), reference::Fp8Format::kE4m3};
  std::vector<uint16_t> words(bytes.size() / 2);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return reference::TensorCoreNumbers(words);
}

// What tensor cores make of rows of 128 bytes, by the reference.
std::vector<uint32_t> referred_bits(const std::vector<std::byte>& a_bytes,
                                    const std::vector<std::byte>& b_bytes, compiler::DType dtype) {
  const auto a = numbers(a_bytes, dtype), b = numbers(b_bytes, dtype);
  const int64_t columns = 128 / compiler::size_bytes(dtype);
  std::vector<uint32_t> bits;
  for (int64_t row = 0; row < 128; ++row)
    for (int64_t column = 0; column < 128; ++column)
      bits.push_back(std::bit_cast<uint32_t>(
          reference::tensor_core_chain(a, columns * row, b, columns * column, columns)));
  return bits;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(SimulatedWgmma, MultipliesE4m3) {
  const Matrix a = random_integers(128, 128, 1);
  const Matrix b = random_integers(128, 128, 2);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(run_tile({}, a, b, seed), product(a, b));
  }
}

TEST(SimulatedWgmma, MultipliesBf16) {
  const Matrix a = random_integers(128, 64, 3);
  const Matrix b = random_integers(128, 64, 4);
  const Tile tile{"wgmma_bf16", compiler::DType::kBF16};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(run_tile(tile, a, b, seed), product(a, b));
  }
}

Matrix transposed(const Matrix& matrix) {
  Matrix turned{matrix.columns, matrix.rows, {}};
  for (std::size_t column = 0; column < matrix.columns; ++column)
    for (std::size_t row = 0; row < matrix.rows; ++row)
      turned.values.push_back(matrix.at(row, column));
  return turned;
}

TEST(SimulatedWgmma, MultipliesBf16AlongEitherDimension) {
  const Matrix a = random_integers(128, 64, 5);
  const Matrix b = random_integers(128, 64, 6);
  const auto bf16 = compiler::DType::kBF16;
  const auto rows_box = box_of(bf16, 64, 128, 64, 64, true);     // 64 k of 64 rows
  const auto columns_box = box_of(bf16, 128, 64, 64, 64, true);  // 64 columns of 64 k
  for (const bool is_a_mn_major : {false, true}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      std::vector<SimBuffer> buffers{{"a", encoded(is_a_mn_major ? transposed(a) : a, bf16), false},
                                     {"b", encoded(transposed(b), bf16), false},
                                     buffer_of("d", std::vector<float>(128 * 128))};
      buffers[2].written = false;
      const auto result =
          run_test_kernel(std::string(is_a_mn_major ? kMnMajor : kMixed) + kOneTile,
                          {.ctas = 2,
                           .threads = 128,
                           .shared_bytes = 64 * 1024,
                           .seed = seed,
                           .maps = {{0, is_a_mn_major ? columns_box : rows_box},
                                    {1, columns_box},
                                    {2, box_of(compiler::DType::kF32, 128, 128, 32, 64, true)}}},
                          buffers);
      ASSERT_TRUE(result.has_value()) << to_string(result.error());
      EXPECT_EQ(values_of<float>(buffers[2]), product(a, b)) << is_a_mn_major << " " << seed;
    }
  }
}

// The reference's arithmetic is that of chips: chip_answers_test.cpp.
TEST(SimulatedWgmma, HasTheBitsOfTensorCoresOnNumbersOfAnySize) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const bool is_bf16 = seed % 2 != 0;
    const Tile tile{is_bf16 ? "wgmma_bf16" : "wgmma_e4m3",
                    is_bf16 ? compiler::DType::kBF16 : compiler::DType::kF8E4M3};
    std::vector<std::byte> a = random_bytes(128 * 128, 2 * seed);
    std::vector<std::byte> b = random_bytes(128 * 128, 2 * seed + 1);
    if (seed / 2 == 0) {  // few NaN: in one row of A only
      for (std::size_t i = 128; i < a.size(); ++i) a[i] &= std::byte{0xbf};
      for (std::byte& byte : b) byte &= std::byte{0xbf};
    }
    EXPECT_EQ(bits_of(run_tile(tile, a, b, seed)), referred_bits(a, b, tile.dtype)) << seed;
  }
}

TEST(SimulatedWgmma, MakesNanOfRowsThatNobodyWrote) {
  const Matrix a = random_integers(128, 128, 5);
  const Matrix b = random_integers(128, 128, 6);
  constexpr std::size_t kWritten = 100;
  std::vector<float> wanted = product(a, b);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<float> sums = run_tile({.unwritten_rows = 128 - kWritten}, a, b, seed);
    for (std::size_t i = 128 * kWritten; i < sums.size(); ++i) {
      ASSERT_TRUE(std::isnan(sums[i])) << "element " << i;
    }
    sums.resize(128 * kWritten);
    wanted.resize(128 * kWritten);
    EXPECT_EQ(sums, wanted);
  }
}

}  // namespace
}  // namespace moejit::runtime
