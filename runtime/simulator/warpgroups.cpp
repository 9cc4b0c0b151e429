// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"

#include <fmt/core.h>

namespace moejit::runtime {

// Instructions that a whole warpgroup executes: its threads meet at one, and the last one to arrive
// does the work. Like other collectives they order no memory.

const char* name_of(WarpgroupStep step) {
  switch (step) {
    case WarpgroupStep::kWgmma: return "wgmma";
    case WarpgroupStep::kReleaseRegisters: return "release_registers";
    case WarpgroupStep::kClaimRegisters: return "claim_registers";
  }
  return "an instruction";
}

// Returns true in the last thread to arrive; part_warpgroup() then lets the others go, and they get
// false.
bool Cta::meet_warpgroup(WarpgroupStep step, const void* operand, sim::Site site) {
  const int32_t index = thread() / sim::kWarpgroupThreads;
  Warpgroup& group = warpgroup_of(thread());
  for (int32_t i = 0; i < kWarpgroupWarps; ++i) {
    const int32_t first = (kWarpgroupWarps * index + i) * sim::kWarpLanes;
    const uint32_t alive = warp_of(first).alive;
    if (alive == UINT32_MAX) continue;
    report(site, fmt::format("executes {}, which wants all 128 threads of warpgroup {}, but thread "
                             "{} has exited or does not exist",
                             name_of(step), index, first + std::countr_one(alive)));
  }
  if (group.met == 0) {
    group.step = step;
    group.site = site;
  } else if (group.step != step || group.site != site) {
    report(site, fmt::format("executes {} while other threads of its warpgroup wait in {} at {}; "
                             "all must execute the same instruction",
                             name_of(step), name_of(group.step), group.site));
  }
  group.operands[static_cast<std::size_t>(thread() % sim::kWarpgroupThreads)] = operand;
  if (++group.met == sim::kWarpgroupThreads) return true;
  wait(Waiting::kWarpgroup, 8 * index + static_cast<int32_t>(step), site);
  return false;
}

void Cta::part_warpgroup(int32_t index) {
  warpgroups_[static_cast<std::size_t>(index)].met = 0;
  for (int32_t i = 0; i < kWarpgroupWarps; ++i) {
    const int32_t warp = kWarpgroupWarps * index + i;
    const bool is_own = thread() / sim::kWarpLanes == warp;
    fibers_.wake(warp, is_own ? ~(1u << (thread() % sim::kWarpLanes)) : UINT32_MAX);
  }
}

// Changes a warpgroup's registers. A CTA begins with as many registers for each thread as its
// launch bounds leave room for. Warpgroups pass these on: none are added (PTX, "setmaxnreg": a pool
// for each CTA).
void Cta::set_registers(int32_t registers, bool is_claim, sim::Site site) {
  const WarpgroupStep step =
      is_claim ? WarpgroupStep::kClaimRegisters : WarpgroupStep::kReleaseRegisters;
  if (!meet_warpgroup(step, nullptr, site)) return;
  const int32_t index = thread() / sim::kWarpgroupThreads;
  Warpgroup& group = warpgroup_of(thread());
  if (is_claim ? registers < group.registers : registers > group.registers) {
    report(site, fmt::format("executes {}<{}> with {} registers a thread", name_of(step), registers,
                             group.registers));
  }
  if (!is_claim) {
    free_registers_[static_cast<std::size_t>(cta_of(thread()))] +=
        (group.registers - registers) * sim::kWarpgroupThreads;
    group.registers = registers;
    part_warpgroup(index);
    grant_claims();
    return;
  }
  group.wanted_registers = registers;
  grant_claims();
  if (group.wanted_registers == 0) return;
  wait(Waiting::kWarpgroup, 8 * index + static_cast<int32_t>(step), site);
}

void Cta::grant_claims() {
  for (std::size_t i = 0; i < warpgroups_.size(); ++i) {
    Warpgroup& group = warpgroups_[i];
    if (group.wanted_registers == 0) continue;
    const int32_t missing = (group.wanted_registers - group.registers) * sim::kWarpgroupThreads;
    const int32_t cta = cta_of(static_cast<int32_t>(i) * sim::kWarpgroupThreads);
    int32_t& free = free_registers_[static_cast<std::size_t>(cta)];
    if (missing > free) continue;
    free -= missing;
    group.registers = group.wanted_registers;
    group.wanted_registers = 0;
    part_warpgroup(static_cast<int32_t>(i));
  }
}

}  // namespace moejit::runtime
