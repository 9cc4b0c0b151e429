// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ring of stages in shared memory between the producer and the math warps. Stage s holds one
// step of the contraction: 128 bytes of each row of A, then of B by sections, swizzled, which
// tensor copies bring; and, apart from these, the factors of the step, which warps write. `full`
// completes when all of a stage is there, `empty` when every math warp is done with it. Phases have
// parity 0, 1, 0, ... in each round over the ring.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device {

// A place in the ring and the parity of its current round.
template <int32_t kStages>
struct RingPosition {
  int32_t stage = 0;
  uint32_t parity = 0;
  MOEJIT_DEVICE void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// kFactorBytes, a multiple of 16, of each stage are written by kFactorWarps warps.
template <typename Shape, int32_t kFactorBytes, int32_t kFactorWarps, uint32_t kFirstByte>
struct Pipeline {
  using TileShape = Shape;
  static constexpr int32_t kStages = Shape::kStages;
  static constexpr int32_t kBytesA = Shape::kRows * Shape::kStepBytes;
  static constexpr int32_t kBoxBytesA = Shape::kBoxRowsA * Shape::kStepBytes;
  static constexpr int32_t kBytesB = Shape::kTileColumns * Shape::kStepBytes;
  static constexpr int32_t kSectionBytesB = kBytesB / Shape::kTileSections;
  static constexpr int32_t kStageBytes = kBytesA + kBytesB;
  static constexpr uint32_t kFactors = kFirstByte + kStages * kStageBytes;
  static constexpr uint32_t kBarriers = kFactors + kStages * kFactorBytes;
  static constexpr uint32_t kEnd = kBarriers + 2 * 8 * kStages;
  static_assert(kFirstByte % 1024 == 0, "swizzled boxes are 1024-byte aligned");
  static_assert(kFactorBytes % 16 == 0, "factors of a stage are 16-byte aligned");

  using Position = RingPosition<kStages>;

  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> a(int32_t stage) {
    return ptx::shared<Bytes16>(kFirstByte + static_cast<uint32_t>(stage * kStageBytes));
  }
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> b(int32_t stage) {
    return ptx::shared<Bytes16>(kFirstByte + static_cast<uint32_t>(stage * kStageBytes + kBytesA));
  }
  template <typename T>
  MOEJIT_DEVICE static ptx::SharedPtr<T> factors(int32_t stage) {
    return ptx::shared<T>(kFactors + static_cast<uint32_t>(stage * kFactorBytes));
  }
  MOEJIT_DEVICE static ptx::Mbarrier full(int32_t stage) {
    return ptx::shared<uint64_t>(kBarriers) + stage;
  }
  MOEJIT_DEVICE static ptx::Mbarrier empty(int32_t stage) {
    return ptx::shared<uint64_t>(kBarriers) + (kStages + stage);
  }

  // One thread; a fence and a CTA barrier follow.
  MOEJIT_DEVICE static void init() {
    for (int32_t stage = 0; stage < kStages; ++stage) {
      ptx::init_mbarrier(full(stage), 1 + kFactorWarps);
      ptx::init_mbarrier(empty(stage), Shape::kMathWarpgroups * 4);
    }
  }

  // Fills stages with a tile's operands, step after step. One thread of the producer. The box of B
  // is that of the widest tile: rows beyond a tile are loaded and not used. kStepElements of the
  // contraction are 128 bytes.
  template <int32_t kStepElements>
  MOEJIT_DEVICE static void load(const TensorMap& a_map, const TensorMap& b_map,
                                 const GemmTile& tile, Position& position) {
    for (int32_t step = 0; step < tile.k_steps; ++step) {
      const int32_t k = tile.k_begin + step * kStepElements;
      const ptx::Mbarrier ready = full(position.stage);
      ptx::wait(empty(position.stage), position.parity ^ 1);
      if constexpr (Shape::kBoxRowsA == Shape::kRows) {
        ptx::arrive_expecting(ready, kStageBytes);
        ptx::load_tensor_2d(a(position.stage), a_map, ready, k, tile.a_row);
      } else {
        const int32_t boxes = ceil_div(tile.rows, Shape::kBoxRowsA);
        ptx::arrive_expecting(ready, boxes * kBoxBytesA + kBytesB);
        for (int32_t box = 0; box < boxes; ++box) {
          ptx::load_tensor_2d(a(position.stage) + box * (kBoxBytesA / 16), a_map, ready, k,
                              tile.a_row + box * Shape::kBoxRowsA);
        }
      }
      ptx::load_tensor_2d<Shape::kPolicyB>(b(position.stage), b_map, ready, k, tile.b_row);
      if constexpr (Shape::kTileSections == 2) {
        ptx::load_tensor_2d<Shape::kPolicyB>(b(position.stage) + kSectionBytesB / 16, b_map, ready,
                                             k, tile.b_row + Shape::kSectionN);
      }
      position.advance();
    }
  }
};

}  // namespace moejit::device
