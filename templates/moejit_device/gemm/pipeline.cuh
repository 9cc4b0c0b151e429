// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ring of stages in shared memory between the producer and the math warps. Stage s holds one
// step of the contraction: 128 bytes of each row of A, then of B by sections, swizzled, which
// tensor copies bring (if MN-major, boxes of 64 rows by all k of the step), or B as it is packed;
// and, apart from these, the factors of the step, which warps write or copies bring. `full`
// completes when all of a stage is there, `empty` when every math warp is done with it, of all CTAs
// of the cluster: each of them copies into the stages of all. Phases have parity 0, 1, 0, ... in
// each round over the ring.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/copy_lanes.cuh"
#include "moejit_device/ptx/tensor_copy.cuh"
#include "moejit_device/ptx/wgmma.cuh"

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

// What Pipeline::load() starts beside the copies of operands: nothing.
struct NoFactorCopy {
  MOEJIT_DEVICE static constexpr int32_t bytes() { return 0; }
  MOEJIT_DEVICE void next(ptx::SharedPtr<Bytes16>, ptx::Mbarrier) const {}
  MOEJIT_DEVICE void skip() const {}
};

// kFactorBytes, a multiple of 16, of each stage are written by kFactorWarps warps, or come by
// copies. Warp i of kCopyWarps brings operands into the stages i, i + kCopyWarps, ...
template <typename Shape, int32_t kFactorBytes, int32_t kFactorWarps, uint32_t kFirstByte,
          int32_t kCopyWarps>
struct Pipeline {
  using TileShape = Shape;
  static constexpr int32_t kStages = Shape::kStages;
  static constexpr int32_t kBytesA = Shape::kRows * Shape::kStepBytes;
  static constexpr int32_t kBoxBytesA = Shape::kBoxRowsA * Shape::kStepBytes;
  static constexpr int32_t kBytesB = Shape::kTileBytesB;
  static constexpr int32_t kSectionBytesB = kBytesB / Shape::kTileSections;
  static constexpr int32_t kStageBytes = kBytesA + align_up(kBytesB, 1024);
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

  // Initializes the barriers, by one thread; a fence and a CTA barrier follow.
  MOEJIT_DEVICE static void init() {
    for (int32_t stage = 0; stage < kStages; ++stage) {
      ptx::init_mbarrier(full(stage), 1 + kFactorWarps);
      ptx::init_mbarrier(empty(stage), Shape::kMathWarpgroups * 4 * Shape::kClusterCtas);
    }
  }

  // Fills stages with a tile's operands, step after step. The copying lanes of warp `copier` of
  // kCopyWarps, which all call it. The box of B fits the widest tile: rows beyond a tile are loaded
  // and not used. Multiplier says how many elements of the contraction a step is, 128 bytes where
  // K-major. `factor_copy` brings the bytes() bytes of the factors of one step after the other, in
  // a cluster for this CTA alone, and of tiles that have rows.
  template <typename Multiplier, typename MapB, typename FactorCopy = NoFactorCopy>
  MOEJIT_DEVICE static void load(const TensorMap& a_map, const MapB& b_map, const GemmTile& tile,
                                 Position& position, int32_t copier, FactorCopy factor_copy = {}) {
    static_assert(kCopyWarps == 1 || Shape::kClusterCtas == 1, "threads copy for their CTA");
    for (int32_t step = 0; step < tile.k_steps; ++step) {
      if constexpr (kCopyWarps > 1) {
        if (position.stage % kCopyWarps != copier) {
          factor_copy.skip();
          position.advance();
          continue;
        }
      }
      const int32_t k = tile.k_begin + step * Multiplier::kStepElements;
      const ptx::Mbarrier ready = full(position.stage);
      ptx::wait(empty(position.stage), position.parity ^ 1);
      if constexpr (Shape::kClusterCtas > 1 && Shape::kSharesA) {
        static_assert(kFactorBytes == 0 || kFactorWarps > 0, "no copies bring factors");
        announce(ready, tile, 0);
        load_own_a<Multiplier>(position.stage, a_map, k, tile);
        load_b<Multiplier>(b(position.stage), b_map, ready, k, tile);
      } else if constexpr (Shape::kClusterCtas > 1) {
        const bool has_rows = tile.rows > 0;
        load_sharing_b<Multiplier>(position.stage, a_map, b_map, ready, k, tile,
                                   has_rows ? factor_copy.bytes() : 0);
        if (has_rows) factor_copy.next(factors<Bytes16>(position.stage), ready);
      } else {
        announce(ready, tile, factor_copy.bytes());
        load_a<Multiplier>(a(position.stage), a_map, ready, k, tile);
        load_b<Multiplier>(b(position.stage), b_map, ready, k, tile);
        factor_copy.next(factors<Bytes16>(position.stage), ready);
        ptx::end_copies(ready);
      }
      position.advance();
    }
  }

  // As load(), of the first tile of a kernel. As many steps' B as there are stages are on their way
  // when it calls `await_a()`, and A follows. CTAs of a cluster share A.
  template <typename Multiplier, typename MapB, typename AwaitA>
  MOEJIT_DEVICE static void load_b_ahead(const TensorMap& a_map, const MapB& b_map,
                                         const GemmTile& tile, Position& position, AwaitA await_a) {
    static_assert(kCopyWarps == 1, "one warp copies the first tile");
    static_assert(Shape::kClusterCtas == 1 || Shape::kSharesA, "the CTA copies its B alone");
    const int32_t ahead = smaller(tile.k_steps, kStages);
    for (int32_t step = 0; step < ahead; ++step) {
      announce(full(step), tile, 0);
      load_b<Multiplier>(b(step), b_map, full(step),
                         tile.k_begin + step * Multiplier::kStepElements, tile);
    }
    await_a();
    for (int32_t step = 0; step < ahead; ++step) {
      load_own_a<Multiplier>(step, a_map, tile.k_begin + step * Multiplier::kStepElements, tile);
      ptx::end_copies(full(step));
      position.advance();
    }
    GemmTile rest = tile;
    rest.k_begin += ahead * Multiplier::kStepElements;
    rest.k_steps -= ahead;
    load<Multiplier>(a_map, b_map, rest, position, 0);
  }

  // Gives a stage back. All lanes of a math warp, when its products are complete.
  MOEJIT_DEVICE static void release(int32_t stage) {
    if constexpr (Shape::kClusterCtas > 1) {
      const int32_t cta = ptx::lane_index();
      if (cta < Shape::kClusterCtas) ptx::arrive_in_cluster(empty(stage), cta);
    } else {
      if (ptx::lane_index() == 0) ptx::arrive(empty(stage));
    }
  }

 private:
  // Loads what this CTA has to of a step's A: all of it, or every kClusterCtas-th box of the A that
  // CTAs of a cluster share, for all of them.
  template <typename Multiplier>
  MOEJIT_DEVICE static void load_own_a(int32_t stage, const TensorMap& map, int32_t k,
                                       const GemmTile& tile) {
    if constexpr (Shape::kClusterCtas == 1) {
      load_a<Multiplier>(a(stage), map, full(stage), k, tile);
    } else {
      static_assert(Multiplier::kMajorA == ptx::Major::kK && !Multiplier::kIsBlocked,
                    "rows of a tile in several boxes");
      const int32_t boxes = boxes_a(tile);
#pragma unroll 1  // few registers
      for (int32_t box = ptx::cta_index() % Shape::kClusterCtas; box < boxes;
           box += Shape::kClusterCtas) {
        ptx::multicast_tensor_2d(a(stage) + box * (kBoxBytesA / 16), map, full(stage), k,
                                 tile.a_row + box * Shape::kBoxRowsA,
                                 (1u << Shape::kClusterCtas) - 1);
      }
    }
  }

  // Loads A, of tiles that have rows, and this CTA's part of B for all CTAs of the cluster; and
  // announces the bytes of A, of all parts of B, which others copy, and of factors.
  template <typename Multiplier, typename MapB>
  MOEJIT_DEVICE static void load_sharing_b(int32_t stage, const TensorMap& a_map, const MapB& b_map,
                                           ptx::Mbarrier ready, int32_t k, const GemmTile& tile,
                                           int32_t factor_bytes) {
    static_assert(Multiplier::kMajorA == Multiplier::kMajorB, "operands of a cluster");
    const bool has_rows = tile.rows > 0;
    ptx::begin_copies(ready, (has_rows ? kBytesA : 0) + kBytesB + factor_bytes);
    if constexpr (Multiplier::kMajorB == ptx::Major::kMn) {
      if (has_rows) load_mn_major<Shape::kRows>(a(stage), a_map, ready, tile.a_row, k, 0);
      multicast_mn_major(b(stage), b_map, ready, tile.column, k, tile.b_matrix);
    } else if constexpr (Multiplier::kIsBlocked) {
      const int32_t block = k / Multiplier::kStepElements;
      if (has_rows) ptx::load_tensor_3d(a(stage), a_map, ready, 0, tile.a_row, block);
      multicast_block(b(stage), b_map, ready, block, tile.b_row);
    } else {
      if (has_rows) ptx::load_tensor_2d(a(stage), a_map, ready, k, tile.a_row);
      multicast_section(b(stage), b_map, ready, k, tile.b_row);
      if constexpr (Shape::kTileSections == 2) {
        multicast_section(b(stage) + kSectionBytesB / 16, b_map, ready, k,
                          tile.b_row + Shape::kSectionN);
      }
    }
  }

  // Copies this CTA's part of the rows of B that a tile has of a section into all CTAs.
  template <typename MapB>
  MOEJIT_DEVICE static void multicast_section(ptx::SharedPtr<Bytes16> to, const MapB& map,
                                              ptx::Mbarrier ready, int32_t k, int32_t b_row) {
    constexpr int32_t kParts = Shape::kClusterCtas;
    constexpr int32_t kPartRows = Shape::kTileColumns / Shape::kTileSections / kParts;
    const int32_t part = ptx::cta_index() % kParts;
    ptx::multicast_tensor_2d(to + part * (kSectionBytesB / kParts / 16), map, ready, k,
                             b_row + part * kPartRows, (1u << kParts) - 1);
  }

  // Copies this CTA's part of the rows of B, which lies in memory step after step, into all CTAs.
  MOEJIT_DEVICE static void multicast_block(ptx::SharedPtr<Bytes16> to, const TensorMap& map,
                                            ptx::Mbarrier ready, int32_t block, int32_t b_row) {
    static_assert(Shape::kTileSections == 1, "of one section");
    constexpr int32_t kParts = Shape::kClusterCtas;
    const int32_t part = ptx::cta_index() % kParts;
    ptx::multicast_tensor_3d(to + part * (kBytesB / kParts / 16), map, ready, 0,
                             b_row + part * (Shape::kTileColumns / kParts), block,
                             (1u << kParts) - 1);
  }

  static constexpr int32_t kMnBoxElements = 64;  // of an MN-major operand, by as many k
  static constexpr int32_t kMnBoxBytes = kMnBoxElements * Shape::kStepBytes;

  // Copies this CTA's part of an MN-major B into all CTAs: of each box, its part of the step's k.
  MOEJIT_DEVICE static void multicast_mn_major(ptx::SharedPtr<Bytes16> to, const TensorMap& map,
                                               ptx::Mbarrier ready, int32_t first, int32_t k,
                                               int32_t matrix) {
    static_assert(Shape::kTileSections == 1, "of one section");
    constexpr int32_t kParts = Shape::kClusterCtas;
    const int32_t part = ptx::cta_index() % kParts;
    const auto to_part = to + part * (kMnBoxBytes / kParts / 16);
#pragma unroll
    for (int32_t box = 0; box < Shape::kTileColumns / kMnBoxElements; ++box) {
      ptx::multicast_tensor_3d(to_part + box * (kMnBoxBytes / 16), map, ready,
                               first + box * kMnBoxElements, k + part * (kMnBoxElements / kParts),
                               matrix, (1u << kParts) - 1);
    }
  }

  // Returns the boxes of A that are copied where a tile has several.
  MOEJIT_DEVICE static int32_t boxes_a(const GemmTile& tile) {
    return ceil_div(Shape::rows_a(tile), Shape::kBoxRowsA);
  }

  // Announces the bytes of both operands and of factors.
  MOEJIT_DEVICE static void announce(ptx::Mbarrier ready, const GemmTile& tile,
                                     int32_t factor_bytes) {
    if constexpr (Shape::kBoxRowsA != Shape::kRows) {
      ptx::begin_copies(ready, boxes_a(tile) * kBoxBytesA + kBytesB + factor_bytes);
    } else {
      ptx::begin_copies(ready, kBytesA + kBytesB + factor_bytes);
    }
  }

  template <typename Multiplier>
  MOEJIT_DEVICE static void load_a(ptx::SharedPtr<Bytes16> to, const TensorMap& map,
                                   ptx::Mbarrier ready, int32_t k, const GemmTile& tile) {
    if constexpr (Shape::kBoxRowsA != Shape::kRows) {
      static_assert(Multiplier::kMajorA == ptx::Major::kK && !Multiplier::kIsBlocked,
                    "rows of a tile in several boxes");
      const int32_t boxes = boxes_a(tile);
      for (int32_t box = 0; box < boxes; ++box) {
        ptx::load_tensor_2d(to + box * (kBoxBytesA / 16), map, ready, k,
                            tile.a_row + box * Shape::kBoxRowsA);
      }
    } else if constexpr (Multiplier::kMajorA == ptx::Major::kMn) {
      load_mn_major<Shape::kRows>(to, map, ready, tile.a_row, k, 0);
    } else if constexpr (Multiplier::kIsBlocked) {
      ptx::load_tensor_3d(to, map, ready, 0, tile.a_row, k / Multiplier::kStepElements);
    } else {
      ptx::load_tensor_2d(to, map, ready, k, tile.a_row);
    }
  }

  template <typename Multiplier, typename MapB>
  MOEJIT_DEVICE static void load_b(ptx::SharedPtr<Bytes16> to, const MapB& map, ptx::Mbarrier ready,
                                   int32_t k, const GemmTile& tile) {
    if constexpr (Multiplier::kMajorB == ptx::Major::kMn) {
      static_assert(Shape::kTileSections == 1, "of one section");
      load_mn_major<Shape::kTileColumns>(to, map, ready, tile.column, k, tile.b_matrix);
    } else if constexpr (Multiplier::kIsBlocked) {
      static_assert(Shape::kTileSections == 1, "of one section");
      ptx::load_tensor_3d(to, map, ready, 0, tile.b_row, k / Multiplier::kStepElements);
    } else if constexpr (Multiplier::kIsPackedB) {
      static_assert(Shape::kTileSections == 1, "of one section");
      load_section_b(to, map, ready, 0, Multiplier::line(tile, k / Multiplier::kStepElements),
                     tile.rows);
    } else if constexpr (Shape::kIsSwapped && Shape::kTileSections == 2) {
      load_gated_b(to, map, ready, k, tile);
    } else {
      load_section_b(to, map, ready, k, tile.b_row, tile.rows);
      if constexpr (Shape::kTileSections == 2) {
        load_section_b(to + kSectionBytesB / 16, map, ready, k, tile.b_row + Shape::kSectionN,
                       tile.rows);
      }
    }
  }

  // Where B streams through L2, it stays there behind a full tile alone: the group may have another
  // one, which reads the same. A tile that is not full is the group's last.
  template <typename MapB>
  MOEJIT_DEVICE static void load_section_b(ptx::SharedPtr<Bytes16> to, const MapB& map,
                                           ptx::Mbarrier ready, int32_t k, int32_t b_row,
                                           int32_t tile_rows) {
    if constexpr (Shape::kStreamsB) {
      if (tile_rows < Shape::kRows) {
        ptx::load_tensor_2d<ptx::CachePolicy::kEvictFirst>(to, map, ready, k, b_row);
        return;
      }
    }
    ptx::load_tensor_2d(to, map, ready, k, b_row);
  }

  // Loads 8 rows of gate, 8 of up, 8 of gate, ... as one box, whose last dimension counts 8
  // columns.
  template <typename MapB>
  MOEJIT_DEVICE static void load_gated_b(ptx::SharedPtr<Bytes16> to, const MapB& map,
                                         ptx::Mbarrier ready, int32_t k, const GemmTile& tile) {
    const int32_t columns = Shape::kAlternates ? (tile.b_row + tile.column) / 16 : tile.b_row / 8;
    if (tile.rows < Shape::kRows) {
      ptx::load_tensor_4d<ptx::CachePolicy::kEvictFirst>(to, map, ready, k, 0, 0, columns);
    } else {
      ptx::load_tensor_4d(to, map, ready, k, 0, 0, columns);
    }
  }

  // kElements of M or N, from `first` on, by the k of a step.
  template <int32_t kElements, typename Map>
  MOEJIT_DEVICE static void load_mn_major(ptx::SharedPtr<Bytes16> to, const Map& map,
                                          ptx::Mbarrier ready, int32_t first, int32_t k,
                                          int32_t matrix) {
#pragma unroll
    for (int32_t box = 0; box < kElements / kMnBoxElements; ++box) {
      ptx::load_tensor_3d(to + box * (kMnBoxBytes / 16), map, ready, first + box * kMnBoxElements,
                          k, matrix);
    }
  }
};

}  // namespace moejit::device
