// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/calls.h"

#include "runtime/simulator/cta.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

using sim::Machine;
using sim::Site;

Cta& cta_of(Machine* machine) { return *static_cast<Cta*>(machine->owner); }

constexpr sim::Calls kCalls{
    .access_shared = [](Machine* m, uint32_t address, uint32_t bytes, sim::Access kind,
                        Site site) { return cta_of(m).access_shared(address, bytes, kind, site); },
    .access_global = [](Machine* m, const void* address, uint32_t bytes, sim::Access kind,
                        Site site) { return cta_of(m).access_global(address, bytes, kind, site); },
    .prefetch_global = [](Machine* m, const void* address, uint32_t bytes,
                          Site site) { cta_of(m).prefetch_global(address, bytes, site); },
    .copy_async = [](Machine* m, uint32_t destination, const void* source, uint32_t bytes,
                     Site site) { cta_of(m).copy_async(destination, source, bytes, site); },
    .commit_async_copies = [](Machine* m) { cta_of(m).commit_async_copies(); },
    .wait_async_copies = [](Machine* m, int32_t pending) { cta_of(m).wait_async_copies(pending); },
    .sync_cta = [](Machine* m, Site site) { cta_of(m).sync_cta(site); },
    .sync_cluster = [](Machine* m, Site site) { cta_of(m).sync_cluster(site); },
    .sync_named = [](Machine* m, int32_t barrier, int32_t threads,
                     Site site) { cta_of(m).sync_named(barrier, threads, site); },
    .sync_warp = [](Machine* m, Site site) { cta_of(m).sync_warp(site); },
    .meet = [](Machine* m, sim::Collective collective, void* lane,
               Site site) { return cta_of(m).meet(collective, lane, site); },
    .part = [](Machine* m) { cta_of(m).part(); },
    .init_mbarrier = [](Machine* m, uint32_t address, int32_t arrivals,
                        Site site) { cta_of(m).init_mbarrier(address, arrivals, site); },
    .fence_mbarrier_init = [](Machine* m) { cta_of(m).fence_mbarrier_init(); },
    .arrive = [](Machine* m, uint32_t address, int32_t bytes,
                 Site site) { cta_of(m).arrive(address, bytes, site); },
    .arrive_in_cluster = [](Machine* m, uint32_t address, int32_t cta,
                            Site site) { cta_of(m).arrive_in_cluster(address, cta, site); },
    .wait = [](Machine* m, uint32_t address, uint32_t parity,
               Site site) { cta_of(m).wait_mbarrier(address, parity, site); },
    .load_tensor =
        [](Machine* m, uint32_t destination, const void* map, uint32_t barrier, const int32_t* at,
           int32_t rank, uint32_t ctas,
           Site site) { cta_of(m).load_tensor(destination, map, barrier, at, rank, ctas, site); },
    .load_bulk = [](Machine* m, uint32_t destination, const void* source, uint32_t bytes,
                    uint32_t barrier,
                    Site site) { cta_of(m).load_bulk(destination, source, bytes, barrier, site); },
    .prefetch_tensor = [](Machine* m, const void* map, const int32_t* /*at*/, int32_t rank,
                          Site site) { cta_of(m).prefetch_tensor(map, rank, site); },
    .store_tensor = [](Machine* m, const void* map, uint32_t source, const int32_t* at,
                       int32_t rank, sim::TensorStoreKind kind,
                       Site site) { cta_of(m).store_tensor(map, source, at, rank, kind, site); },
    .commit_tensor_stores = [](Machine* m) { cta_of(m).commit_tensor_stores(); },
    .wait_tensor_stores = [](Machine* m,
                             int32_t pending) { cta_of(m).wait_tensor_stores(pending); },
    .fence_proxy_async = [](Machine* m) { cta_of(m).fence_proxy_async(); },
    .fence_proxy_async_global = [](Machine* m) { cta_of(m).fence_proxy_async_global(); },
    .store_bulk = [](Machine* m, void* destination, uint32_t source, uint32_t bytes,
                     Site site) { cta_of(m).store_bulk(destination, source, bytes, site); },
    .land_bulk_stores = [](Machine* m, int32_t pending) { cta_of(m).land_bulk_stores(pending); },
    .load_flag = [](Machine* m, const void* flag,
                    Site site) { return cta_of(m).load_flag(flag, site); },
    .wait_flag = [](Machine* m, const void* flag, uint32_t wanted, uint64_t deadline,
                    Site site) { return cta_of(m).wait_flag(flag, wanted, deadline, site); },
    .store_flag = [](Machine* m, void* flag, uint32_t value, bool is_release,
                     Site site) { cta_of(m).store_flag(flag, value, is_release, site); },
    .add_to_flag = [](Machine* m, void* flag, uint32_t value,
                      Site site) { return cta_of(m).add_to_flag(flag, value, site); },
    .check_own_flag = [](Machine* m, const void* flag,
                         Site site) { cta_of(m).check_own_flag(flag, site); },
    .fence_system = [](Machine* m) { cta_of(m).fence_system(); },
    .global_nanoseconds = [](Machine* m, Site site) { return cta_of(m).global_nanoseconds(site); },
    .issue_wgmma = [](Machine* m, const sim::WgmmaLane* lane,
                      Site site) { cta_of(m).issue_wgmma(*lane, site); },
    .fence_wgmma = [](Machine* m, Site site) { cta_of(m).fence_wgmma(site); },
    .commit_wgmma = [](Machine* m, Site site) { cta_of(m).commit_wgmma(site); },
    .wait_wgmma = [](Machine* m, int32_t pending,
                     Site site) { cta_of(m).wait_wgmma(pending, site); },
    .set_registers = [](Machine* m, int32_t registers, bool is_claim,
                        Site site) { cta_of(m).set_registers(registers, is_claim, site); },
    .invalid =
        [](Machine* m, const char* what, int64_t got, Site site) {
          cta_of(m).report(site,
                           fmt::format("{} is {}, which the hardware does not take", what, got));
        },
    .misuse = [](Machine* m, const char* what, Site site) { cta_of(m).report(site, what); },
};

}  // namespace

const sim::Calls& calls_of_cta() { return kCalls; }

const char* name_of(sim::Collective collective) {
  switch (collective) {
    case sim::Collective::kShuffle: return "shuffle";
    case sim::Collective::kShuffleXor: return "shuffle_xor";
    case sim::Collective::kShuffleUp: return "shuffle_up";
    case sim::Collective::kBallot: return "ballot";
    case sim::Collective::kMatchAny: return "match_any";
    case sim::Collective::kLoadMatrices: return "load_matrices";
    case sim::Collective::kStoreMatrices: return "store_matrices";
    case sim::Collective::kMma: return "mma";
    case sim::Collective::kWgmmaFence: return "wgmma_fence";
    case sim::Collective::kWgmmaCommit: return "wgmma_commit";
    case sim::Collective::kWgmmaWait: return "wgmma_wait";
  }
  return "a collective";
}

}  // namespace moejit::runtime
