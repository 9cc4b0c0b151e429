// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"
#include "runtime/simulator/wgmma_arithmetic.h"

#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <span>

namespace moejit::runtime {

// Issues and carries out WGMMAs. The 128 threads of a warpgroup meet to issue a WGMMA; its operands
// are checked then, against what is ordered before all of the threads. It is carried out when the
// first warp waits for it at the latest, after the WGMMAs that the warpgroup issued earlier. A warp
// that has waited knows that all of the warpgroup's reads are done.

MatrixOperand Cta::operand_of(uint64_t descriptor, const char* name, bool is_mn_major,
                              int32_t elements, sim::Site site) {
  const auto field = [descriptor](int32_t low, int32_t bits) {
    return static_cast<uint32_t>(descriptor >> low & ((uint64_t{1} << bits) - 1));
  };
  const MatrixOperand operand{.is_mn_major = is_mn_major,
                              .elements = elements,
                              .address = field(0, 14) << 4,
                              .group_stride = field(32, 14) << 4,
                              .box_stride = field(16, 14) << 4};
  if (field(62, 2) != 1) {
    report(site, fmt::format("multiplies operand {}, whose descriptor has layout {}, wanted 1, the "
                             "128-byte swizzle",
                             name, field(62, 2)));
  }
  if (field(49, 3) != 0 || operand.group_stride % 1024 != 0) {
    report(site, fmt::format("multiplies operand {}, whose descriptor has base offset {} and {} "
                             "bytes from 8 rows to the next, wanted 0 and a multiple of 1024",
                             name, field(49, 3), operand.group_stride));
  }
  if (is_mn_major && elements > 64 && (operand.box_stride == 0 || operand.box_stride % 1024 != 0)) {
    report(site, fmt::format("multiplies operand {}, MN-major with {} elements, whose descriptor "
                             "has {} bytes from 64 of them to the next, wanted a multiple of 1024",
                             name, elements, operand.box_stride));
  }
  if (is_mn_major && operand.address % 1024 != 0) {
    report(site, fmt::format("multiplies operand {}, MN-major, which begins at offset {} of shared "
                             "memory, wanted a multiple of 1024",
                             name, static_cast<int64_t>(operand.address) - sim::kSharedBase));
  }
  if (operand.address % 1024 > 96 || operand.address % 32 != 0) {
    report(site, fmt::format("multiplies operand {}, which begins at offset {} of shared memory, "
                             "wanted a multiple of 1024 plus 0, 32, 64 or 96",
                             name, static_cast<int64_t>(operand.address) - sim::kSharedBase));
  }
  return operand;
}

MatrixOperand Cta::a_of(const sim::WgmmaLane& lane, sim::Site site) {
  return operand_of(lane.a, "A", lane.is_a_mn_major, kWgmmaRows, site);
}

MatrixOperand Cta::b_of(const sim::WgmmaLane& lane, sim::Site site) {
  return operand_of(lane.b, "B", lane.is_b_mn_major, lane.columns, site);
}

namespace {

// Gathers A from the registers of a warpgroup. `lanes` are the WgmmaLanes of its threads.
std::unique_ptr<RegisterOperand> gather_registers(std::span<const void* const> lanes,
                                                  sim::Site site) {
  auto rows = std::make_unique<RegisterOperand>();
  for (std::size_t thread = 0; thread < lanes.size(); ++thread) {
    const auto* lane = static_cast<const sim::WgmmaLane*>(lanes[thread]);
    for (std::size_t word = 0; word < 4; ++word)
      std::memcpy(rows->bytes.data() + RegisterOperand::place(thread, word), lane->a_words + word,
                  4);
    rows->words[thread] = lane->a_words;
    rows->states[thread] = lane->a_state;
    ++lane->a_state->in_flight;
    lane->a_state->is_pinned = false;
    lane->a_state->issued = site;
  }
  return rows;
}

// Returns whether a thread's registers are as they were when the WGMMA was issued.
bool holds_operand(const RegisterOperand& a, std::size_t thread) {
  for (std::size_t word = 0; word < 4; ++word)
    if (std::memcmp(a.bytes.data() + RegisterOperand::place(thread, word), a.words[thread] + word,
                    4) != 0)
      return false;
  return true;
}

}  // namespace

void Cta::check_lanes(const Warpgroup& group, sim::Site site) {
  const auto* first = static_cast<const sim::WgmmaLane*>(group.operands[0]);
  const int32_t first_thread =
      static_cast<int32_t>(&group - warpgroups_.data()) * sim::kWarpgroupThreads;
  for (std::size_t i = 0; i < group.operands.size(); ++i) {
    const auto* lane = static_cast<const sim::WgmmaLane*>(group.operands[i]);
    const int32_t thread = first_thread + static_cast<int32_t>(i);
    if (lane->a != first->a || lane->b != first->b || lane->accumulate != first->accumulate ||
        (lane->a_words == nullptr) != (first->a_words == nullptr) ||
        lane->is_a_mn_major != first->is_a_mn_major ||
        lane->is_b_mn_major != first->is_b_mn_major || lane->columns != first->columns ||
        lane->a_format != first->a_format || lane->b_format != first->b_format) {
      std::string what = fmt::format("passes other operands to wgmma than thread {}", first_thread);
      report_of(thread, site, what);
    }
    if (!lane->state->is_fenced) {
      std::string what = "starts a wgmma into sums that were touched since their last wgmma_fence";
      if (!lane->state->is_defined) what = "starts a wgmma into sums before their wgmma_fence";
      report_of(thread, site, what);
    }
    if (lane->accumulate && !lane->state->is_defined) {
      std::string what = "adds to sums that no WGMMA has written";
      report_of(thread, site, what);
    }
  }
  for (const int64_t committed : group.committed) {
    if (committed == group.committed[0]) continue;
    report(site, "executes wgmma with warps that have committed different numbers of groups");
  }
}

void Cta::mark_operand(const MatrixOperand& operand, int32_t group, Stamp done, sim::Site site) {
  const Actor now{done, &order_.common(group)};
  for (int32_t line = 0; line < operand.lines(); ++line) {
    for (uint32_t chunk = 0; chunk < operand.chunks(); ++chunk) {
      const uint32_t offset = shared_offset(operand.chunk_address(line, chunk),
                                            SharedMemory::kChunk, "multiplies", site);
      const Conflict conflict =
          shared_.read_async(offset, now, done, site, Arrangement::kSwizzledRows, false);
      if (conflict != Conflict::kNone) {
        report(site, describe(conflict, "multiplies", SharedMemory::kChunk));
      }
    }
  }
}

void Cta::issue_wgmma(const sim::WgmmaLane& lane, sim::Site site) {
  if (!meet_warpgroup(WarpgroupStep::kWgmma, &lane, site)) return;
  const int32_t index = thread() / sim::kWarpgroupThreads;
  Warpgroup& group = warpgroup_of(thread());
  check_lanes(group, site);
  if (group.agent < 0) group.agent = add_agent(Agent::Kind::kWgmma, index);
  const Stamp done =
      Ordering::agent_stamp(group.agent, group.first + static_cast<uint32_t>(group.wgmmas.size()));
  if (lane.a_words == nullptr) mark_operand(a_of(lane, site), index, done, site);
  mark_operand(b_of(lane, site), index, done, site);
  Wgmma& issued = group.wgmmas.emplace_back();
  issued.lane = lane;
  if (lane.a_words != nullptr) issued.a = gather_registers(group.operands, site);
  issued.group = group.committed[0];
  issued.site = site;
  ++wgmmas_under_way_;
  for (std::size_t i = 0; i < group.operands.size(); ++i) {
    const auto* own = static_cast<const sim::WgmmaLane*>(group.operands[i]);
    issued.sums[i] = own->sums;
    issued.states[i] = own->state;
    ++own->state->in_flight;
    own->state->is_defined = true;
    own->state->is_readable = false;
    own->state->issued = site;
  }
  part_warpgroup(index);
}

// Gathers the operand as rows of 32 bytes of the contraction.
void Cta::gather(const MatrixOperand& operand, int32_t cta, unsigned char* packed) {
  for (int32_t line = 0; line < operand.lines(); ++line) {
    for (uint32_t chunk = 0; chunk < operand.chunks(); ++chunk) {
      const std::byte* from =
          shared_.at(shared_begin(cta) + operand.chunk_address(line, chunk) - sim::kSharedBase);
      if (!operand.is_mn_major) {
        std::memcpy(packed + 32 * line + 16 * chunk, from, SharedMemory::kChunk);
        continue;
      }
      for (uint32_t i = 0; i < 8; ++i) {
        std::memcpy(packed + 32 * (8 * chunk + i) + 2 * line, from + 2 * i, 2);
      }
    }
  }
}

void Cta::carry_out_next(Warpgroup& group) {
  const Wgmma& next = group.wgmmas[group.done++];
  --wgmmas_under_way_;
  if (wgmma_buffers_ == nullptr) wgmma_buffers_ = std::make_unique<WgmmaBuffers>();
  WgmmaBuffers& buffers = *wgmma_buffers_;
  const auto index = static_cast<int32_t>(&group - warpgroups_.data());
  const int32_t cta = cta_of(index * sim::kWarpgroupThreads);
  if (next.a == nullptr) gather(a_of(next.lane, next.site), cta, buffers.a.data());
  gather(b_of(next.lane, next.site), cta, buffers.b.data());
  const MultiplyWgmma multiply =
      wgmma_arithmetic(next.lane.a_format, next.lane.b_format, vector_level());
  multiply({.a = next.a == nullptr ? buffers.a.data() : next.a->bytes.data(),
            .b = buffers.b.data(),
            .columns = next.lane.columns,
            .sums = next.sums.data(),
            .accumulate = next.lane.accumulate,
            .scratch = buffers.scratch.data()});
}

// Lets a thread's registers go. The hardware reads them until the WGMMA is complete, while this
// simulator has read them when it was issued.
void Cta::release_registers(const Wgmma& wgmma, int32_t thread, sim::Site site) {
  const auto in_group = static_cast<std::size_t>(thread % sim::kWarpgroupThreads);
  if (!holds_operand(*wgmma.a, in_group)) {
    std::string what = fmt::format(
        "waits for the wgmma at {}, whose registers of A it has changed meanwhile", wgmma.site);
    report_of(thread, site, what);
  }
  --wgmma.a->states[in_group]->in_flight;
}

void Cta::fence_wgmma(sim::Site site) {
  if (meet(sim::Collective::kWgmmaFence, nullptr, site)) part();
}

void Cta::commit_wgmma(sim::Site site) {
  if (!meet(sim::Collective::kWgmmaCommit, nullptr, site)) return;
  const int32_t warp = thread() / sim::kWarpLanes % kWarpgroupWarps;
  ++warpgroup_of(thread()).committed[static_cast<std::size_t>(warp)];
  part();
}

void Cta::wait_wgmma(int32_t pending_groups, sim::Site site) {
  if (!meet(sim::Collective::kWgmmaWait, nullptr, site)) return;
  const int32_t warp = thread() / sim::kWarpLanes;
  const auto in_group = static_cast<std::size_t>(warp % kWarpgroupWarps);
  Warpgroup& group = warpgroup_of(thread());
  const int64_t covered = group.committed[in_group] - pending_groups;
  for (std::size_t i = 0; i < group.wgmmas.size() && group.wgmmas[i].group < covered; ++i) {
    while (group.done <= i) carry_out_next(group);
    Wgmma& wgmma = group.wgmmas[i];
    if ((wgmma.waited_warps >> in_group & 1u) != 0) continue;
    wgmma.waited_warps |= 1u << in_group;
    for (std::size_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      --wgmma.states[sim::kWarpLanes * in_group + lane]->in_flight;
      if (wgmma.a != nullptr)
        release_registers(wgmma, warp * sim::kWarpLanes + static_cast<int32_t>(lane), site);
    }
    order_.learn_in_warp(warp, group.agent, group.first + static_cast<uint32_t>(i) + 1);
  }
  while (!group.wgmmas.empty() && group.wgmmas.front().waited_warps == 0xfu) {
    group.wgmmas.pop_front();
    ++group.first;
    --group.done;
  }
  part();
}

}  // namespace moejit::runtime
