// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of this folder have in common. They stand after this text.

constexpr uint32_t kA = 0;         // shared memory: [64] rows of 128 bytes of A, swizzled
constexpr uint32_t kB = 8192;      // likewise of B
constexpr uint32_t kD = 16384;     // [64] rows of 32 floats, swizzled
constexpr uint32_t kFull = 24576;  // mbarriers
constexpr uint32_t kEmpty = kFull + 8;
constexpr int32_t kTileBytes = 64 * 128;

struct Params {
  const uint32_t* a;    // [64] rows of 128 e4m3
  const uint32_t* b;    // likewise
  float* d;             // [64 * CTAs] rows of 32
  TensorMap a_map;      // boxes of 64 rows
  TensorMap b_map;      // likewise
  TensorMap plain_map;  // of A, not swizzled
  TensorMap d_map;      // boxes of 64 rows
};

MOEJIT_DEVICE Mbarrier full_barrier() { return shared<uint64_t>(kFull); }
MOEJIT_DEVICE Mbarrier empty_barrier() { return shared<uint64_t>(kEmpty); }

// All threads: both barriers, with one arrival a phase.
MOEJIT_DEVICE void make_barriers() {
  if (thread_index() == 0) {
    init_mbarrier(full_barrier(), 1);
    init_mbarrier(empty_barrier(), 1);
    fence_mbarrier_init();
  }
  sync_cta();
}

// One thread: both operands.
MOEJIT_DEVICE void load_operands(const Params& params) {
  arrive_expecting(full_barrier(), 2 * kTileBytes);
  load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);
  load_tensor_2d(shared<Bytes16>(kB), params.b_map, full_barrier(), 0, 0);
}

MOEJIT_DEVICE MatrixDescriptor a_operand() { return matrix_descriptor(shared<Bytes16>(kA)); }
MOEJIT_DEVICE MatrixDescriptor b_operand() { return matrix_descriptor(shared<Bytes16>(kB)); }

// The place of this thread's 16 floats of the output.
MOEJIT_DEVICE GlobalPtr<float> own_output(const Params& params) {
  return global(params.d) + (int64_t{2048} * cta_index() + 16 * (thread_index() % 128));
}
MOEJIT_DEVICE SharedPtr<Bytes16> own_chunk(uint32_t tile) {
  return shared<Bytes16>(tile) + thread_index() % 128;
}
