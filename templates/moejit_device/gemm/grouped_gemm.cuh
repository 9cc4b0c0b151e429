// SPDX-License-Identifier: Apache-2.0
#pragma once

// The grouped GEMM skeleton. A persistent CTA takes tile after tile with two or three warpgroups.
// In the producer, one warp walks over the tiles, one copies their operands into a ring of stages,
// others supply the factors of scales. Where threads copy, all warps that are left do, each into
// stages of its own. The one or two math warpgroups multiply, promote and store a part of the tile
// each.
//
//   Shape      tiles and their parts:       part(tile, warpgroup), dispatch<Kernel>(tile, ...)
//   Scheduler  which tile comes next:       Scheduler(params), GemmTile next()
//   Mainloop   a part's sums:               run<kW, kSteps, Stages>(k_steps, part, scales,
//                                           reader, sums)
//   Scales     what partial sums are        of kSuppliers warps: supply<Stages>(params, supplier,
//              multiplied with:             tile, position), or, where kIsCopied, Copy(params,
//                                           tile) of the warp that copies operands and before
//                                           init<Stages>(); of math warps: start(tile, part) and
//                                           what its main loop calls
//   Epilogue   what becomes of the sums:    Epilogue(staging), finish(),
//                                           run<kW>(params, tile, part, sums); where kHasStorers,
//                                           a warp beside each math warpgroup runs
//                                           serve<Shape, Queue>(params, staging)
//
// Each can be replaced alone as long as it speaks the records of tile.cuh. Complete emitted
// examples are tests/golden/sources/*_gemm_*.cu.
//
// With kOverlap the launch overlaps with the kernel before (ptx/overlap.cuh). The mbarriers are
// initialized ahead of the wait. With Overlap::kLoadsB so much of B as fits into the ring is on its
// way, too, since no kernel of the call writes B. The kernel before then must not write counts and
// offs either, which say what the first tile is. With Overlap::kFindsGroups it may: the CTA counts
// the choices of each group itself (GroupsOfChoices).
//
// With kZerosRest the math warpgroups write zeros to the rows of D behind the last group's, too:
// the rows from offs[E] on up to the T of the call.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/gemm/pipeline.cuh"
#include "moejit_device/gemm/tile_queue.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/clock.cuh"
#include "moejit_device/ptx/overlap.cuh"

namespace moejit::device {

// What comes ahead of the wait for the kernel before.
enum class Overlap {
  kNone,         // the launch does not overlap
  kBarriers,     // the mbarriers
  kLoadsB,       // the first tile, and the copies of its B
  kFindsGroups,  // groups in ids, then as kLoadsB
};

// Returns the shared memory of groups that a scheduler finds itself.
template <typename Scheduler>
MOEJIT_DEVICE constexpr int32_t shared_bytes_of_groups() {
  if constexpr (requires { Scheduler::Groups::kSharedBytes; })
    return Scheduler::Groups::kSharedBytes;
  return 0;
}

template <typename Shape, typename Scheduler, typename Mainloop, typename Scales, typename Epilogue,
          bool kZerosRest = false, Overlap kOverlap = Overlap::kNone>
struct GroupedGemm {
  // If no warp is a supplier and no copies bring factors, the warp that walks over the tiles writes
  // them, if any.
  static constexpr bool kWalkerSupplies =
      Scales::kSuppliers == 0 && Scales::kFactorBytes > 0 && !Scales::kIsCopied;
  static constexpr uint32_t kStagingBytes = Epilogue::template kStagingBytes<Shape>;
  // Four stages of 48 KiB leave nothing for alignment behind their factors.
  static constexpr bool kStagingIsFirst = Shape::kTileColumns > kMostStagedColumns;
  static constexpr uint32_t kFirstStage =
      kStagingIsFirst ? align_up<uint32_t>(kStagingBytes, 1024) : 0;
  static constexpr int32_t kStorers = Epilogue::kHasStorers ? Shape::kMathWarpgroups : 0;
  static constexpr int32_t kOtherWarps = 1 + Scales::kSuppliers + kStorers;  // of the producer
  static constexpr int32_t kCopyWarps = ptx::kThreadsCopy ? 4 - kOtherWarps : 1;
  static_assert(kOtherWarps + kCopyWarps <= 4, "the warps of the producer");
  using Stages = Pipeline<Shape, Scales::kFactorBytes, kWalkerSupplies ? 1 : Scales::kSuppliers,
                          kFirstStage, kCopyWarps>;
  static constexpr uint32_t kStaging = kStagingIsFirst ? 0 : align_up<uint32_t>(Stages::kEnd, 1024);
  static constexpr uint32_t kBuffersEnd = kStagingIsFirst ? Stages::kEnd : kStaging + kStagingBytes;
  // All but the warp that walks.
  static constexpr int32_t kReaderWarps = 4 * Shape::kMathWarpgroups + kCopyWarps + kOtherWarps - 1;
  using Queue = TileQueue<kReaderWarps, kBuffersEnd>;

  static constexpr bool kFindsGroups = kOverlap == Overlap::kFindsGroups;
  static constexpr bool kLoadsBAhead = kOverlap == Overlap::kLoadsB || kFindsGroups;
  static constexpr uint32_t kFirstGroup = Queue::kEnd;  // of those that are found

  static constexpr bool kIsCluster = Shape::kClusterCtas > 1;
  static constexpr int32_t kThreads = Shape::kThreads;
  static constexpr int32_t kCtasPerSm = Shape::kCtasPerSm;
  static constexpr uint32_t kMathRegisters = kCtasPerSm == 1 ? 232 : 216;
  static constexpr int32_t kSharedBytes = kFirstGroup + shared_bytes_of_groups<Scheduler>();
  static_assert(kSharedBytes <= 233472 / kCtasPerSm - 1024, "shared memory of a CTA on Hopper");
  static_assert(!kLoadsBAhead || !Scales::kIsCopied, "no factors come with B");

  template <typename Params>
  MOEJIT_DEVICE static void run(const Params& params) {
    if (has_other_tokens(params.call)) return;
    if (ptx::thread_index() == 0) {
      Stages::init();
      Queue::init();
      if constexpr (kStorers > 0) {
        for (int32_t i = 0; i < kStorers; ++i) Epilogue::init(staging_of(i));
      }
      ptx::fence_mbarrier_init();
    }
    if constexpr (Scales::kIsCopied) {
      if (ptx::warp_index() == 1) Scales::template init<Stages>();
    }
    if constexpr (kFindsGroups) {
      Scheduler::Groups::template clear<kThreads>(kFirstGroup);
      ptx::sync_cta();  // all counts are zero
      Scheduler::Groups::template count_all<kThreads>(params, kFirstGroup);
    }
    sync();  // the mbarriers are initialized, and groups are counted
    if constexpr (kOverlap == Overlap::kBarriers) ptx::await_kernel_before();
    const int32_t warpgroup = ptx::warpgroup_index();
    if (warpgroup == Shape::kMathWarpgroups) {
      ptx::release_registers<40>();
      const int32_t warp = ptx::warp_index() - 4 * Shape::kMathWarpgroups;
      if (warp == 0) load(params, 0);
      if (warp == 1) schedule(params);
      if constexpr (Scales::kSuppliers > 0) {
        if (warp >= 2 && warp < 2 + Scales::kSuppliers) supply(params, warp - 2);
      }
      if constexpr (kStorers > 0) {
        const int32_t storer = warp - (2 + Scales::kSuppliers);
        if (storer >= 0 && storer < kStorers)
          Epilogue::template serve<Shape, Queue>(params, staging_of(storer));
      }
      if constexpr (kCopyWarps > 1) {
        if (warp > kOtherWarps) load(params, warp - kOtherWarps);
      }
    } else {
      ptx::claim_registers<kMathRegisters>();
      multiply(params, warpgroup);
    }
    if constexpr (kIsCluster) {
      ptx::sync_warp();  // all lanes are back
      sync();            // nobody copies into the shared memory of a CTA that has ended
    }
  }

 private:
  friend Shape;  // calls compute()

  // Waits for all threads of the cluster.
  MOEJIT_DEVICE static void sync() {
    if constexpr (kIsCluster) {
      ptx::sync_cluster();
    } else {
      ptx::sync_cta();
    }
  }

  // Returns the staging buffer of a math warpgroup.
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> staging_of(int32_t warpgroup) {
    return ptx::shared<Bytes16>(kStaging) +
           warpgroup * static_cast<int32_t>(kStagingBytes / Shape::kMathWarpgroups / 16);
  }

  template <typename Params>
  MOEJIT_DEVICE static Scheduler make_scheduler(const Params& params) {
    if constexpr (kFindsGroups) return Scheduler(params, kFirstGroup);
    return Scheduler(params);
  }

  // A warp of the producer walks over the tiles, several ahead of everybody else; with factors to
  // write, as far ahead as the ring is long.
  template <typename Params>
  MOEJIT_DEVICE static void schedule(const Params& params) {
    Scheduler scheduler = make_scheduler(params);
    Queue queue;
    typename Stages::Position position;
    GemmTile tile;
    do {
      tile = scheduler.next();
      if (ptx::lane_index() == 0) queue.put(tile);
      ptx::sync_warp();  // the first lane is back
      if constexpr (kWalkerSupplies) {
        if (tile.group >= 0) Scales::template supply<Stages>(params, 0, tile, position);
      }
    } while (tile.group >= 0);
  }

  // Others write factors.
  template <typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t supplier) {
    if constexpr (kLoadsBAhead) ptx::await_kernel_before();
    Queue queue;
    typename Stages::Position position;
    while (true) {
      const GemmTile tile = queue.front();
      if (tile.group < 0) break;
      Scales::template supply<Stages>(params, supplier, tile, position);
      queue.pop();
    }
  }

  // Another one copies operands, or several do: `copier` is which of them.
  template <typename Params>
  MOEJIT_DEVICE static void load(const Params& params, int32_t copier) {
    if (ptx::lane_index() == 0) {
      ptx::prefetch_tensor_map(params.a_map);
      ptx::prefetch_tensor_map(params.b_map);
    }
    Queue queue;
    typename Stages::Position position;
    if constexpr (kLoadsBAhead) load_first_tile(params, queue, position);
    while (true) {
      const GemmTile tile = queue.front();
      if (tile.group < 0) break;
      if (ptx::lane_index() < ptx::kCopyLanes) load_tile(params, tile, position, copier);
      ptx::sync_warp();  // the copying lanes are back
      queue.pop();
    }
    if constexpr (kOverlap != Overlap::kNone) start_kernel_behind();
  }

  // Lets the kernel behind begin when all is loaded. If it began earlier, its CTAs would crowd on
  // the SMs that are done first, and leave the others idle.
  MOEJIT_DEVICE static void start_kernel_behind() {
    ptx::await_kernel_before();  // a warp without tiles has not
    ptx::start_kernel_behind();
  }

  // Copies the first tile's B ahead of the wait, if there is one, and its A behind it.
  template <typename Params>
  MOEJIT_DEVICE static void load_first_tile(const Params& params, Queue& queue,
                                            typename Stages::Position& position) {
    const GemmTile tile = queue.front();
    if (tile.group < 0) return;
    if (ptx::lane_index() < ptx::kCopyLanes) {
      Stages::template load_b_ahead<typename Mainloop::Multiplier>(
          params.a_map, params.b_map, tile, position, [] { ptx::await_kernel_before(); });
    }
    ptx::sync_warp();  // the copying lanes are back
    queue.pop();
  }

  template <typename Params>
  MOEJIT_DEVICE static void load_tile(const Params& params, const GemmTile& tile,
                                      typename Stages::Position& position, int32_t copier) {
    using Multiplier = typename Mainloop::Multiplier;
    if constexpr (Scales::kIsCopied) {
      Stages::template load<Multiplier>(params.a_map, params.b_map, tile, position, copier,
                                        typename Scales::Copy(params, tile));
    } else {
      Stages::template load<Multiplier>(params.a_map, params.b_map, tile, position, copier);
    }
  }

  template <typename Params>
  MOEJIT_DEVICE static void multiply(const Params& params, int32_t warpgroup) {
    if constexpr (kLoadsBAhead) ptx::await_kernel_before();
    Queue queue;
    StageReader<Stages> reader;
    Scales scales;
    Epilogue epilogue(staging_of(warpgroup));
    start_clock(params);
    if constexpr (kZerosRest) zero_rest(params);
    while (true) {
      const GemmTile tile = queue.front();
      if (tile.group < 0) break;
      Shape::template dispatch<GroupedGemm>(tile, tile, params, warpgroup, queue, scales, reader,
                                            epilogue);
      queue.pop();
    }
    epilogue.finish();
    stop_clock(params);
  }

  template <typename Params>
  MOEJIT_DEVICE static void zero_rest(const Params& params) {
    constexpr int64_t kVectors = Scheduler::kColumns / 8;  // of 16 bytes in a row
    const int64_t first = ptx::load(ptx::global(params.offs) + Scheduler::kGroups) * kVectors;
    const auto rest = ptx::as<Bytes16>(ptx::global(params.d));
    constexpr int64_t kMathThreads = 128 * Shape::kMathWarpgroups;
    int64_t i = first + ptx::cta_index() * kMathThreads + ptx::thread_index();
    for (; i < params.call.tokens * kVectors; i += ptx::cta_count() * kMathThreads)
      ptx::store(rest + i, Bytes16{});
  }

  // Returns whether there is anything to multiply in a warpgroup's part.
  MOEJIT_DEVICE static bool has_products(const GemmTile& tile, int32_t warpgroup) {
    if constexpr (Shape::kHasEmptyParts) return Shape::part(tile, warpgroup).row < tile.rows;
    if constexpr (kIsCluster) return tile.rows > 0 && tile.k_steps > 0;
    return tile.k_steps > 0;
  }

  // Kept in memory meanwhile, not in registers. Differences of unsigned numbers may wrap.
  template <typename Params>
  MOEJIT_DEVICE static void start_clock(const Params& params) {
    if (params.elapsed == nullptr || ptx::cta_index() > 0 || ptx::thread_index() > 0) return;
    ptx::store(ptx::global(params.elapsed), 0 - ptx::sm_clock());
    ptx::store(ptx::global(params.elapsed) + 1, 0 - ptx::global_nanoseconds());
  }
  template <typename Params>
  MOEJIT_DEVICE static void stop_clock(const Params& params) {
    if (params.elapsed == nullptr || ptx::cta_index() > 0 || ptx::thread_index() > 0) return;
    const auto clocks = ptx::global(params.elapsed);
    ptx::store(clocks, ptx::load(clocks) + ptx::sm_clock());
    ptx::store(clocks + 1, ptx::load(clocks + 1) + ptx::global_nanoseconds());
  }

  // For every kW there is a body of its own, so what they share stands outside. Reads the tile
  // again for the epilogue: in the main loop registers are scarce.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void compute(const GemmTile& due, const Params& params, int32_t warpgroup,
                                    const Queue& queue, Scales& scales, StageReader<Stages>& reader,
                                    Epilogue& epilogue) {
    float sums[kW / 2];
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = 0.0f;
    const WarpgroupPart part = Shape::part(due, warpgroup);
    if (has_products(due, warpgroup)) {
      scales.start(due, part);
      Mainloop::template run<kW, Scheduler::kSteps, Stages>(due.k_steps, part, scales, reader,
                                                            sums);
    } else if constexpr (Shape::kHasEmptyParts || kIsCluster) {
      reader.skip(due.k_steps);  // the other warpgroup's, or another CTA's
    }
    const GemmTile tile = queue.front();
    if constexpr (kIsCluster) {
      if (tile.padded_rows == 0) return;  // the group ends above
    }
    epilogue.template run<kW>(params, tile, part, sums);
  }
};

}  // namespace moejit::device
