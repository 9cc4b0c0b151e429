// SPDX-License-Identifier: Apache-2.0
#pragma once

// For bf16 operands without scales, or with such as the epilogue applies, where groups divide the
// contraction and start anywhere. The last step of a group then has rows of the next group, or what
// lies behind the last one. They count as zeros, whatever they hold.

#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/ptx/barrier.cuh"

namespace moejit::device {

class GroupTail : public NoScales {
 public:
  static constexpr bool kEndsGroups = true;

  MOEJIT_DEVICE void start(const GemmTile& tile, const WarpgroupPart&) { elements_ = tile.section; }

  // Makes zeros of the rows of both operands that lie behind the group, in the stage of its last
  // step. All threads of all math warpgroups, before one of them multiplies the stage.
  template <typename Multiply, typename Stages>
  MOEJIT_DEVICE void end_group(int32_t stage) const {
    using Shape = typename Stages::TileShape;
    static_assert(Multiply::kMajorA == ptx::Major::kMn && Multiply::kMajorB == ptx::Major::kMn,
                  "an element of the contraction is 128 bytes of each box");
    static_assert(Shape::kStepBytes == 2 * Multiply::kStepElements, "boxes of 64 x 64 elements");
    if (elements_ == Multiply::kStepElements) return;
    constexpr int32_t kWords = Shape::kStepBytes / 16;  // of an element in a box
    constexpr int32_t kBoxWords = Multiply::kStepElements * kWords;
    constexpr int32_t kBoxes = Stages::kStageBytes / 16 / kBoxWords;
    constexpr int32_t kThreads = ptx::kWarpgroupThreads * Shape::kMathWarpgroups;
    const int32_t first = elements_ * kWords + ptx::thread_index();
#pragma unroll 1
    for (int32_t box = 0; box < kBoxes; ++box) {
      for (int32_t word = first; word < kBoxWords; word += kThreads)
        ptx::store(Stages::a(stage) + box * kBoxWords + word, Bytes16{});
    }
    ptx::fence_proxy_async();
    ptx::sync_named(kBarrier, kThreads);  // the stage is as it should be
  }

 private:
  static constexpr int32_t kBarrier = 8;  // epilogues have the first ones

  int32_t elements_ = 0;  // of the last step
};

}  // namespace moejit::device
