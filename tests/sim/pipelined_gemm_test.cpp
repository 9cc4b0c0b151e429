// SPDX-License-Identifier: Apache-2.0
//
// A whole GEMM in Hopper's way: a producer warp fills a ring of stages, two math warpgroups
// multiply and store their half of each tile through shared memory. In whatever order the hardware
// works, the result is one and the rules are kept.

#include "tests/sim/support/matrices.h"
#include "tests/sim/support/sim_kernel.h"

#include <bit>

namespace moejit::runtime {
namespace {

// D[tiles * 128, 64] = A[tiles * 128, 640] * B[64, 640]^T; persistent CTAs, D in bf16.
constexpr const char* kGemm = R"(
constexpr int32_t kStages = 3;
constexpr int32_t kSteps = 5;
constexpr int32_t kStageBytes = (128 + 64) * 128;
constexpr uint32_t kStaging = kStages * kStageBytes;  // 64 rows of 128 bytes of each warpgroup
constexpr uint32_t kBarriers = kStaging + 2 * 8192;

struct Params {
  const void* a;
  const void* b;
  void* d;
  const int32_t* tiles;
  TensorMap a_map;
  TensorMap b_map;
  TensorMap d_map;
};

struct Ring {
  int32_t stage = 0;
  uint32_t parity = 0;
  void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

inline Mbarrier full(int32_t stage) { return shared<uint64_t>(kBarriers) + stage; }
inline Mbarrier empty(int32_t stage) { return shared<uint64_t>(kBarriers) + (kStages + stage); }
inline SharedPtr<Bytes16> a_stage(int32_t stage) {
  return shared<Bytes16>(static_cast<uint32_t>(stage * kStageBytes));
}
inline SharedPtr<Bytes16> b_stage(int32_t stage) {
  return shared<Bytes16>(static_cast<uint32_t>(stage * kStageBytes + 128 * 128));
}

inline void produce(const Params& params, int32_t tiles) {
  Ring ring;
  for (int32_t tile = cta_index(); tile < tiles; tile += cta_count()) {
    for (int32_t step = 0; step < kSteps; ++step) {
      wait(empty(ring.stage), ring.parity ^ 1);
      load_tensor_2d(a_stage(ring.stage), params.a_map, full(ring.stage), 128 * step, 128 * tile);
      load_tensor_2d<CachePolicy::kEvictLast>(b_stage(ring.stage), params.b_map, full(ring.stage),
                                              128 * step, 0);
      arrive_expecting(full(ring.stage), kStageBytes);
      ring.advance();
    }
  }
}

inline void multiply(Ring& ring, int32_t group, float (&total)[32]) {
  for (float& element : total) element = 0.0f;
  for (int32_t step = 0; step < kSteps; ++step) {
    WgmmaSum<64> sum;
    const auto a = matrix_descriptor(a_stage(ring.stage)) + 8192 * group;
    const auto b = matrix_descriptor(b_stage(ring.stage));
    wait(full(ring.stage), ring.parity);
    wgmma_fence(sum);
    for (int32_t k = 0; k < 4; ++k) wgmma_e4m3(sum, a + 32 * k, b + 32 * k, k > 0);
    wgmma_commit();
    wgmma_wait<0>(sum);
    if (lane_index() == 0) arrive(empty(ring.stage));
    ring.advance();
    for (int32_t i = 0; i < 32; ++i) total[i] = add(total[i], sum(i));
  }
}

inline void store_tile(const Params& params, int32_t group, int32_t tile,
                       const float (&total)[32]) {
  const auto staging = shared<Bytes16>(kStaging + static_cast<uint32_t>(8192 * group));
  const int32_t leader = 128 * group;
  if (thread_index() == leader) wait_tensor_stores_read<0>();
  sync_named(1 + group, 128);  // the staging memory is free
  const int32_t lane = lane_index();
  const int32_t row = 16 * (warp_index() % 4) + lane % 16;
  for (int32_t j = 0; j < 8; j += 2) {
    MatrixFragments f;
    for (int32_t i = 0; i < 4; ++i) {
      f.word[i] = bf16_pair(total[4 * j + 2 * i], total[4 * j + 2 * i + 1]);
    }
    const int32_t chunk = (j + lane / 16) ^ (row % 8);
    store_matrices(staging + (8 * row + chunk), f);
  }
  fence_proxy_async();
  sync_named(1 + group, 128);  // all of it is written
  if (thread_index() == leader) {
    store_tensor_2d(params.d_map, staging, 0, 128 * tile + 64 * group);
    commit_tensor_stores();
  }
}

MOEJIT_KERNEL(384, 1, test_kernel, Params) {
  if (thread_index() == 0) {
    for (int32_t stage = 0; stage < kStages; ++stage) {
      init_mbarrier(full(stage), 1);
      init_mbarrier(empty(stage), 8);
    }
    fence_mbarrier_init();
  }
  sync_cta();
  const int32_t tiles = load(global(params.tiles));
  const int32_t group = warpgroup_index();
  if (group == 2) {
    release_registers<40>();
    if (thread_index() == 256) produce(params, tiles);
    return;
  }
  claim_registers<232>();
  Ring ring;
  for (int32_t tile = cta_index(); tile < tiles; tile += cta_count()) {
    float total[32];
    multiply(ring, group, total);
    store_tile(params, group, tile, total);
  }
  if (thread_index() % 128 == 0) wait_tensor_stores_read<0>();
}
)";

uint16_t rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The bits of D.
std::vector<uint16_t> run_gemm(const Matrix& a, const Matrix& b, uint64_t seed, int32_t workers) {
  using compiler::DType;
  const auto rows = static_cast<int64_t>(a.rows);
  const std::vector<int32_t> tiles{static_cast<int32_t>(rows / 128)};
  std::vector<SimBuffer> buffers{{"a", encoded(a, DType::kF8E4M3), false},
                                 {"b", encoded(b, DType::kF8E4M3), false},
                                 buffer_of("d", std::vector<uint16_t>(a.rows * b.rows)),
                                 buffer_of("tiles", tiles, false)};
  buffers[2].written = false;
  const auto result =
      run_test_kernel(kGemm,
                      {.ctas = 2,
                       .threads = 384,
                       .shared_bytes = 90 * 1024 + 64,
                       .seed = seed,
                       .workers = workers,
                       .maps = {{0, box_of(DType::kF8E4M3, 640, rows, 128, 128, true)},
                                {1, box_of(DType::kF8E4M3, 640, 64, 128, 64, true)},
                                {2, box_of(DType::kBF16, 64, rows, 64, 64, true)}}},
                      buffers);
  EXPECT_TRUE(result.has_value()) << "seed " << seed << ": " << to_string(result.error());
  return values_of<uint16_t>(buffers[2]);
}

TEST(SimulatedPipeline, GivesTheProductInEveryOrder) {
  const Matrix a = random_integers(3 * 128, 640, 7);
  const Matrix b = random_integers(64, 640, 8);
  std::vector<uint16_t> wanted;
  for (const float sum : product(a, b)) wanted.push_back(rounded_to_bf16(sum));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_EQ(run_gemm(a, b, seed, 1 + static_cast<int32_t>(seed % 2)), wanted) << seed;
  }
}

}  // namespace
}  // namespace moejit::runtime
