// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/calls.h"

#include "runtime/simulator/cta.h"

#include <new>

namespace moejit::runtime {
namespace {

using sim::Machine;
using sim::Site;

Cta& cta_of(Machine* machine) { return *static_cast<Cta*>(machine->owner); }

// Calls a member for a kernel, whose code no exception can pass: it has no tables for unwinding. So
// a lack of memory ends the CTA here.
template <auto kMember>
struct Call;
template <typename R, typename... Arguments, R (Cta::*kMember)(Arguments...)>
struct Call<kMember> {
  static R run(Machine* machine, Arguments... arguments) {
    Cta& cta = cta_of(machine);
    try {
      return (cta.*kMember)(arguments...);
    } catch (const std::bad_alloc&) {
    }
    cta.stop_without_memory();  // not in the handler: nothing ends it when its fiber is forgotten
  }
};

constexpr sim::Calls kCalls{
    .access_shared = Call<&Cta::access_shared>::run,
    .access_global = Call<&Cta::access_global>::run,
    .prefetch_global = Call<&Cta::prefetch_global>::run,
    .copy_async = Call<&Cta::copy_async>::run,
    .copy_operand_async = Call<&Cta::copy_operand_async>::run,
    .commit_async_copies = Call<&Cta::commit_async_copies>::run,
    .wait_async_copies = Call<&Cta::wait_async_copies>::run,
    .sync_cta = Call<&Cta::sync_cta>::run,
    .sync_cluster = Call<&Cta::sync_cluster>::run,
    .sync_named = Call<&Cta::sync_named>::run,
    .sync_warp = Call<&Cta::sync_warp>::run,
    .meet = Call<&Cta::meet>::run,
    .part = Call<&Cta::part>::run,
    .init_mbarrier = Call<&Cta::init_mbarrier>::run,
    .fence_mbarrier_init = Call<&Cta::fence_mbarrier_init>::run,
    .arrive = Call<&Cta::arrive>::run,
    .arrive_in_cluster = Call<&Cta::arrive_in_cluster>::run,
    .wait = Call<&Cta::wait_mbarrier>::run,
    .arrive_when_copied = Call<&Cta::arrive_when_copied>::run,
    .load_tensor = Call<&Cta::load_tensor>::run,
    .load_bulk = Call<&Cta::load_bulk>::run,
    .prefetch_tensor = [](Machine* m, const void* map, const int32_t* /*at*/, int32_t rank,
                          Site site) { Call<&Cta::prefetch_tensor>::run(m, map, rank, site); },
    .store_tensor = Call<&Cta::store_tensor>::run,
    .commit_tensor_stores = Call<&Cta::commit_tensor_stores>::run,
    .wait_tensor_stores = Call<&Cta::wait_tensor_stores>::run,
    .fence_proxy_async = Call<&Cta::fence_proxy_async>::run,
    .fence_proxy_async_global = Call<&Cta::fence_proxy_async_global>::run,
    .store_bulk = Call<&Cta::store_bulk>::run,
    .land_bulk_stores = Call<&Cta::land_bulk_stores>::run,
    .load_flag = Call<&Cta::load_flag>::run,
    .wait_flag = Call<&Cta::wait_flag>::run,
    .store_flag = Call<&Cta::store_flag>::run,
    .add_to_flag = Call<&Cta::add_to_flag>::run,
    .check_own_flag = Call<&Cta::check_own_flag>::run,
    .fence_system = Call<&Cta::fence_system>::run,
    .global_nanoseconds = Call<&Cta::global_nanoseconds>::run,
    .await_kernel_before = Call<&Cta::await_kernel_before>::run,
    .start_kernel_behind = Call<&Cta::start_kernel_behind>::run,
    .issue_wgmma = [](Machine* m, const sim::WgmmaLane* lane,
                      Site site) { Call<&Cta::issue_wgmma>::run(m, *lane, site); },
    .fence_wgmma = Call<&Cta::fence_wgmma>::run,
    .commit_wgmma = Call<&Cta::commit_wgmma>::run,
    .wait_wgmma = Call<&Cta::wait_wgmma>::run,
    .set_registers = Call<&Cta::set_registers>::run,
    .invalid = [](Machine* m, const char* what, int64_t got,
                  Site site) { Call<&Cta::report_value>::run(m, what, got, site); },
    .misuse = [](Machine* m, const char* what,
                 Site site) { Call<&Cta::report_misuse>::run(m, what, site); },
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
