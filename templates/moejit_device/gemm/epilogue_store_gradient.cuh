// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes sums into a D that has one matrix for each group, in fp32 or rounded to bf16, or adds them
// to what D holds. Panels of 64 rows and 128 bytes pass through each math warpgroup's staging
// buffer in rounds of kPanelsStaged; a warp beside it, the storer, moves them. So no math warp
// waits for a store, and old values arrive under the products.
//
// To add, the first kPanelsLoaded panels of a tile bring their old values into the staging buffer,
// where the math warps add; the others are added by L2 on their way to D. L2 adds about 300 G
// elements a second whatever the shape, loading costs shared memory and a round trip: which is
// better depends on how many products a tile has. In bf16 all panels bring their old values: L2
// would add rounded sums, which rounds twice. Every element of D is added to once, so results are
// the same in every run.
//
// `ready` completes when a round may be written and its old values are there, `staged` when it
// holds what belongs into D.

#include "moejit_device/gemm/gradient_panel.cuh"
#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/gemm/tile_queue.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/copy_lanes.cuh"
#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device {

template <typename Problem, typename Element, bool kAdds, int32_t kPanelsStaged,
          int32_t kPanelsLoaded>
class EpilogueStoreGradient {
  using Panel = GradientPanel<Element>;
  using Staging = ptx::SharedPtr<Bytes16>;
  // With the hint, results in bf16 are written 1 % faster; fp32 that is added to loses 2 %.
  static constexpr auto kPolicy =
      sizeof(Element) == 2 ? ptx::CachePolicy::kEvictFirst : ptx::CachePolicy::kNormal;
  static_assert(kPanelsLoaded <= kPanelsStaged, "old values come in the first round");
  static_assert(kAdds || kPanelsLoaded == 0, "old values are for adding");

 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes =
      Shape::kMathWarpgroups* align_up<int32_t>(kPanelsStaged* Panel::kBytes + 2 * 8, 1024);
  static constexpr bool kHasStorers = true;

  // Initializes each math warpgroup's buffer, by one thread; a fence and a CTA barrier follow.
  MOEJIT_DEVICE static void init(Staging staging) {
    ptx::init_mbarrier(ready(staging), 1);
    ptx::init_mbarrier(staged(staging), ptx::kWarpgroupThreads / 32);
  }

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit EpilogueStoreGradient(Staging staging) : staging_(staging) {}

  // All threads of a math warpgroup.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params&, const GemmTile&, const WarpgroupPart&,
                         const float (&sums)[kW / 2]) {
    constexpr int32_t kPanels = kW / Panel::kColumns;
    static_assert(!kAdds || sizeof(Element) == 4 || kPanels <= kPanelsLoaded,
                  "L2 would add rounded sums");
#pragma unroll
    for (int32_t first = 0; first < kPanels; first += kPanelsStaged) {
      ptx::wait(ready(staging_), parity_);
      parity_ ^= 1;
#pragma unroll
      for (int32_t i = first; i < smaller(first + kPanelsStaged, kPanels); ++i) {
        const Staging panel = staging_ + (i - first) * Panel::kChunks;
        if constexpr (kPanelsLoaded > 0) {
          if (i < kPanelsLoaded) Panel::add(panel, sums + i * Panel::kSums);
        }
        if (i >= kPanelsLoaded) Panel::write(panel, sums + i * Panel::kSums);
      }
      // Panels are read by tensor copies. One barrier a round: fences and arrivals cost.
      ptx::fence_proxy_async();
      ptx::sync_warp();
      if (ptx::lane_index() == 0) ptx::arrive(staged(staging_));
    }
  }

  // Before the CTA ends. The storer waits.
  MOEJIT_DEVICE void finish() const {}

  // All lanes of a warpgroup's storer; those that copy work.
  template <typename Shape, typename Queue, typename Params>
  MOEJIT_DEVICE static void serve(const Params& params, Staging staging) {
    const int32_t warpgroup = ptx::warp_index() - (4 * Shape::kMathWarpgroups + 2);
    const bool copies = ptx::lane_index() < ptx::kCopyLanes;
    Queue queue;
    uint32_t parity = 0;
    if (copies) make_ready<Shape>(params, queue.front(), warpgroup, staging);
    while (true) {
      const GemmTile tile = queue.front();
      if (tile.group < 0) break;
      if (copies) {
        store_tile<Shape>(params, tile, warpgroup, staging, parity);
        make_ready<Shape>(params, queue.following(), warpgroup, staging);
      }
      ptx::sync_warp();  // the copying lanes are back
      queue.pop();
    }
    if (copies) ptx::wait_tensor_stores<0>();
  }

 private:
  // Returns how many panels a part has, half of the tile's.
  template <typename Shape>
  MOEJIT_DEVICE static int32_t panels_of(const GemmTile& tile) {
    static_assert(Shape::Part::columns(Shape::kWideColumns) % Panel::kColumns == 0 &&
                      Shape::Part::columns(Shape::kNarrowColumns) % Panel::kColumns == 0,
                  "parts are whole panels");
    return Shape::columns(tile) / Panel::kColumns;
  }
  // Returns where panel i of a part starts in its tile.
  template <typename Shape>
  MOEJIT_DEVICE static WarpgroupPart panel_of(const GemmTile& tile, int32_t warpgroup, int32_t i) {
    return Shape::Part::panel(warpgroup, Shape::columns(tile), Panel::kColumns, i);
  }

  // Returns whether a tile is stored: one below D's last row, of a cluster, is not.
  template <typename Shape>
  MOEJIT_DEVICE static bool is_stored(const GemmTile& tile) {
    return Shape::kClusterCtas == 1 || tile.padded_rows > 0;
  }

  // For the first round of a tile. Rows and columns beyond D are read as zeros.
  template <typename Shape, typename Params>
  MOEJIT_DEVICE static void make_ready(const Params& params, const GemmTile& tile,
                                       int32_t warpgroup, Staging staging) {
    if (!is_stored<Shape>(tile)) return;
    if constexpr (kPanelsLoaded == 0) {
      ptx::arrive_together(ready(staging));
    } else if (tile.group >= 0) {
      const int32_t panels = smaller(panels_of<Shape>(tile), kPanelsLoaded);
      ptx::begin_copies(ready(staging), panels * Panel::kBytes);
      for (int32_t i = 0; i < panels; ++i) {
        const WarpgroupPart at = panel_of<Shape>(tile, warpgroup, i);
        load_panel(params, staging + i * Panel::kChunks, ready(staging), tile.column + at.column,
                   tile.d_row + at.row, tile.d_matrix);
      }
      ptx::end_copies(ready(staging));
    }
  }

  // Rows and columns beyond D are not written.
  template <typename Shape, typename Params>
  MOEJIT_DEVICE static void store_tile(const Params& params, const GemmTile& tile,
                                       int32_t warpgroup, Staging staging, uint32_t& parity) {
    if (!is_stored<Shape>(tile)) return;
    const int32_t panels = panels_of<Shape>(tile);
    for (int32_t first = 0; first < panels; first += kPanelsStaged) {
      if (first > 0) ptx::arrive_together(ready(staging));
      ptx::wait(staged(staging), parity);
      parity ^= 1;
      for (int32_t i = first; i < smaller(first + kPanelsStaged, panels); ++i) {
        const Staging panel = staging + (i - first) * Panel::kChunks;
        const WarpgroupPart at = panel_of<Shape>(tile, warpgroup, i);
        store_panel(params, panel, kAdds && i >= kPanelsLoaded, tile.column + at.column,
                    tile.d_row + at.row, tile.d_matrix);
      }
      ptx::commit_tensor_stores();
      ptx::wait_tensor_stores_read<0>();
    }
  }

  // `matrix` is the matrix of a group and section.
  template <typename Params>
  MOEJIT_DEVICE static void load_panel(const Params& params, Staging panel, ptx::Mbarrier ready,
                                       int32_t column, int32_t row, int32_t matrix) {
    if constexpr (Problem::kInterleaved) {
      ptx::load_tensor_4d(panel, params.d_map, ready, column, matrix % Problem::kSections, row,
                          matrix / Problem::kSections);
    } else {
      ptx::load_tensor_3d(panel, params.d_map, ready, column, row, matrix);
    }
  }
  template <typename Params>
  MOEJIT_DEVICE static void store_panel(const Params& params, Staging panel, bool adds,
                                        int32_t column, int32_t row, int32_t matrix) {
    if constexpr (Problem::kInterleaved) {
      const int32_t section = matrix % Problem::kSections, group = matrix / Problem::kSections;
      if (adds) {
        ptx::add_tensor_4d(params.d_map, panel, column, section, row, group);
      } else {
        ptx::store_tensor_4d<kPolicy>(params.d_map, panel, column, section, row, group);
      }
    } else if (adds) {
      ptx::add_tensor_3d(params.d_map, panel, column, row, matrix);
    } else {
      ptx::store_tensor_3d<kPolicy>(params.d_map, panel, column, row, matrix);
    }
  }

  MOEJIT_DEVICE static ptx::Mbarrier ready(Staging staging) {
    return ptx::as<uint64_t>(staging + kPanelsStaged * Panel::kChunks);
  }
  MOEJIT_DEVICE static ptx::Mbarrier staged(Staging staging) { return ready(staging) + 1; }

  Staging staging_;
  uint32_t parity_ = 0;  // of the next round
};

}  // namespace moejit::device
