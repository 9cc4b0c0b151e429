// SPDX-License-Identifier: Apache-2.0
//
// What WGMMA computes from operands that tensor copies brought, against a plain loop on the host.
// Inputs are small integers, so every sum is exact.

#include "tests/sim/support/matrices.h"
#include "tests/sim/support/sim_kernel.h"

#include <cmath>

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
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full, 0, 64 * cta_index());
    arrive_expecting(full, (64 + 128) * 128);
    load_tensor_2d<CachePolicy::kEvictLast>(shared<Bytes16>(kB), params.b_map, full, 0, 0);
  }
  wait(full, 0);
  WgmmaSum<128> sum;
  const auto a = matrix_descriptor(shared<Bytes16>(kA));
  const auto b = matrix_descriptor(shared<Bytes16>(kB));
  wgmma_fence(sum);
  for (int32_t k = 0; k < 4; ++k) MULTIPLY(sum, a + 32 * k, b + 32 * k, k > 0);
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

struct Tile {
  std::string multiply = "wgmma_e4m3";  // the instruction
  compiler::DType dtype = compiler::DType::kF8E4M3;
  std::size_t unwritten_rows = 0;  // at the end of A
};

// Runs the kernel on 128 rows of A, half of them in each of two CTAs, and gives D.
std::vector<float> run_tile(const Tile& tile, const Matrix& a, const Matrix& b, uint64_t seed) {
  std::vector<SimBuffer> buffers{
      {"a", encoded(a, tile.dtype), false, true, 128 * tile.unwritten_rows},
      {"b", encoded(b, tile.dtype), false},
      buffer_of("d", std::vector<float>(a.rows * b.rows))};
  buffers[2].written = false;
  const auto rows_128 = [&](std::size_t buffer, const Matrix& matrix, int32_t box_rows) {
    return SimMap{buffer, box_of(tile.dtype, static_cast<int64_t>(matrix.columns),
                                 static_cast<int64_t>(matrix.rows),
                                 static_cast<int32_t>(matrix.columns), box_rows, true)};
  };
  const auto result = run_test_kernel(
      "#define MULTIPLY " + tile.multiply + "\n" + kOneTile,
      {.ctas = 2,
       .threads = 128,
       .shared_bytes = 64 * 1024,
       .seed = seed,
       .maps = {rows_128(0, a, 64),
                rows_128(1, b, 128),
                {2,
                 box_of(compiler::DType::kF32, 128, static_cast<int64_t>(a.rows), 32, 64, true)}}},
      buffers);
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return values_of<float>(buffers[2]);
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
