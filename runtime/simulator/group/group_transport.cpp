// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/group_transport.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

using compiler::Movement;
using Step = TransportCore::Step;

// Copies the bytes that rank `from` sends to rank `to`.
void copy_block(const std::vector<GroupDevice*>& devices, const Step& step, std::size_t move,
                std::size_t from, std::size_t to) {
  const BlockTransfer &sent = step.blocks[from][move], &received = step.blocks[to][move];
  const int64_t skipped =
      sent.movement == Movement::kExchange ? static_cast<int64_t>(to) * sent.bytes : 0;
  devices[to]->copy_here(
      static_cast<std::byte*>(received.destination) + static_cast<int64_t>(from) * sent.bytes,
      static_cast<const std::byte*>(sent.source) + skipped, sent.bytes);
}

void copy_all(const std::vector<GroupDevice*>& devices, const Step& step) {
  for (std::size_t move = 0; move < step.blocks.front().size(); ++move)
    for (std::size_t from = 0; from < devices.size(); ++from)
      for (std::size_t to = 0; to < devices.size(); ++to) copy_block(devices, step, move, from, to);
}

// Fills what an abandoned step would have written: the bytes mean nothing.
void write_nothing(GroupDevice& device, const Step& step, std::size_t rank) {
  for (const BlockTransfer& block : step.blocks[rank])
    for (std::size_t peer = 0; peer < step.blocks.size(); ++peer)
      device.copy_here(
          static_cast<std::byte*>(block.destination) + static_cast<int64_t>(peer) * block.bytes,
          block.source, block.bytes);
}

// Returns the first of the blocks that is not like the other rank's, or nothing.
std::string difference(std::span<const BlockTransfer> own, std::span<const BlockTransfer> other) {
  if (own.size() != other.size()) return fmt::format("{} and {} blocks", own.size(), other.size());
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i].bytes != other[i].bytes || own[i].movement != other[i].movement)
      return fmt::format("block {} of {} and {} bytes, {} and {}", i, own[i].bytes, other[i].bytes,
                         to_string(own[i].movement), to_string(other[i].movement));
  return {};
}

}  // namespace

Result<std::vector<std::vector<std::string>>> GroupTransport::introduce(
    const std::vector<std::string>& identity) {
  const std::lock_guard lock(core_->group.lock);
  core_->identities[static_cast<std::size_t>(rank_)] = identity;
  return core_->identities;
}

Result<void> GroupTransport::move(std::span<const BlockTransfer> blocks, Stream stream) {
  const std::lock_guard lock(core_->group.lock);
  MOEJIT_TRY(check_usable());
  TransportCore& core = *core_;
  const auto own = static_cast<std::size_t>(rank_);
  const int64_t call = core.calls[own]++;
  if (call - core.first == std::ssize(core.steps)) {
    auto step = std::make_shared<Step>();
    step->blocks.resize(core.devices.size());
    step->meeting = std::make_shared<Meeting>(
        ranks(), fmt::format("step {} of the transport", call),
        // The meeting belongs to the step, so the step lives as long as this object.
        [devices = core.devices, made = step.get()] { copy_all(devices, *made); });
    core.steps.push_back(std::move(step));
  }
  const std::shared_ptr<Step> step = core.steps[static_cast<std::size_t>(call - core.first)];
  for (std::size_t rank = 0; rank < step->blocks.size(); ++rank)
    if (!step->blocks[rank].empty())
      if (const std::string differs = difference(blocks, step->blocks[rank]); !differs.empty())
        return fail(Stage::kLaunch, ErrorCode::kInternal,
                    fmt::format("ranks {} and {} differ in step {} of the transport: {}", rank_,
                                rank, call, differs));
  step->blocks[own].assign(blocks.begin(), blocks.end());
  core.group.enqueue(rank_, stream,
                     {.launch = nullptr,
                      .work = {},
                      .meeting = std::shared_ptr<Meeting>(step, step->meeting.get()),
                      .host = {}});
  core.group.enqueue(rank_, stream,
                     {.launch = nullptr,
                      .work =
                          [step, own, device = core.devices[own]] {
                            if (step->meeting->is_abandoned()) write_nothing(*device, *step, own);
                          },
                      .host = {}});
  while (!core.steps.empty() &&
         std::ranges::all_of(core.calls, [&](int64_t made) { return made > core.first; })) {
    core.steps.pop_front();
    ++core.first;
  }
  return {};
}

Result<void> GroupTransport::check_usable() const {
  if (!core_->is_aborted) return {};
  return fail(Stage::kLaunch, ErrorCode::kInvalidState,
              "the transport was aborted, wanted one that is whole",
              "open another group on all ranks");
}

Result<void> GroupTransport::check() {
  const std::lock_guard lock(core_->group.lock);
  return check_usable();
}

void GroupTransport::abort() {
  const std::lock_guard lock(core_->group.lock);
  core_->is_aborted = true;
  for (const auto& step : core_->steps) step->meeting->abandon();
}

}  // namespace moejit::runtime
