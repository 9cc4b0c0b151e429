// SPDX-License-Identifier: Apache-2.0
#include "runtime/nccl_transport.h"

#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/driver/driver_api.h"
#include "runtime/group/rendezvous_messages.h"
#include "runtime/nccl/communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fmt/core.h>
#include <mutex>
#include <thread>

namespace moejit::runtime {
namespace {

using compiler::Movement;

// Bytes of an identity on its way; long values are digests there.
constexpr int64_t kIdentityBytes = 32 * 1024;

// Aborts a transport if the scope lasts longer than its deadline: calls that block, and waits for
// the GPU, then return.
class AbortAt {
 public:
  AbortAt(Transport& transport, int64_t deadline_ms)
      : thread_([this, &transport, deadline_ms](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          const auto wait = std::chrono::milliseconds(deadline_ms);
          if (ended_.wait_for(lock, stop, wait, [&] { return false; }) || stop.stop_requested())
            return;
          has_aborted_ = true;
          transport.abort();
        }) {}

  bool has_aborted() const { return has_aborted_; }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::atomic<bool> has_aborted_ = false;
  std::jthread thread_;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(Device& device, std::unique_ptr<Communicator> communicator)
      : device_(device), communicator_(std::move(communicator)) {}

  int32_t rank() const override { return communicator_->rank(); }
  int32_t ranks() const override { return communicator_->ranks(); }
  Result<std::vector<std::vector<std::string>>> introduce(
      const std::vector<std::string>& identity) override;
  Result<void> move(std::span<const BlockTransfer> blocks, Stream stream) override;
  Result<void> check() override { return communicator_->check(); }
  void abort() override { communicator_->abort(); }

 private:
  Result<std::vector<std::byte>> gather(const std::vector<std::byte>& own);

  Device& device_;
  std::unique_ptr<Communicator> communicator_;
};

// Returns what all ranks bring, in the order of ranks. Makes each connection that a step may need.
Result<std::vector<std::byte>> NcclTransport::gather(const std::vector<std::byte>& own) {
  const auto bytes = static_cast<int64_t>(own.size());
  std::vector<std::byte> all(own.size() * static_cast<std::size_t>(ranks()));
  MOEJIT_TRY_ASSIGN(const DeviceMemory from,
                    DeviceMemory::allocate(device_, static_cast<int64_t>(all.size())));
  MOEJIT_TRY_ASSIGN(const DeviceMemory to,
                    DeviceMemory::allocate(device_, static_cast<int64_t>(all.size())));
  for (int32_t rank = 0; rank < ranks(); ++rank)
    MOEJIT_TRY(device_.copy_to_device(static_cast<std::byte*>(from.address()) + rank * bytes,
                                      own.data(), bytes));
  for (const Movement movement : {Movement::kExchange, Movement::kGather}) {
    const BlockTransfer block{.movement = movement,
                              .source = from.address(),
                              .destination = to.address(),
                              .bytes = bytes};
    MOEJIT_TRY(move({&block, 1}, nullptr));
  }
  MOEJIT_TRY(device_.copy_to_host(all.data(), to.address(), static_cast<int64_t>(all.size())));
  return all;
}

Result<std::vector<std::vector<std::string>>> NcclTransport::introduce(
    const std::vector<std::string>& identity) {
  const AbortAt watch(*this, communicator_->deadline_ms());
  std::string text;
  for (const std::string& field : shortened(identity)) text += field + '\n';
  if (std::ssize(text) >= kIdentityBytes)
    return fail(
        Stage::kLoad, ErrorCode::kInternal,
        fmt::format("an identity of {} bytes, wanted fewer than {}", text.size(), kIdentityBytes));
  std::vector<std::byte> own(kIdentityBytes);
  std::memcpy(own.data(), text.data(), text.size());
  auto all = gather(own);
  if (watch.has_aborted())
    return fail(Stage::kLoad, ErrorCode::kInterrupted,
                fmt::format("not all of the {} ranks told what their plans are within {} ms",
                            ranks(), communicator_->deadline_ms()),
                "open the group on all ranks");
  MOEJIT_TRY(all);
  std::vector<std::vector<std::string>> identities(static_cast<std::size_t>(ranks()));
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    std::string_view said(reinterpret_cast<const char*>(all->data()) + rank * kIdentityBytes,
                          kIdentityBytes);
    for (std::size_t end = 0; (end = said.find('\n')) != std::string_view::npos;
         said.remove_prefix(end + 1))
      identities[rank].emplace_back(said.substr(0, end));
  }
  return identities;
}

Result<void> NcclTransport::move(std::span<const BlockTransfer> blocks, Stream stream) {
  const EnteredDevice entered(device_);
  MOEJIT_TRY(entered.check());
  // NCCL's documentation allows collectives in a group, or sends and receives, but not both
  // ("Group Calls").
  const bool gathers = std::ranges::all_of(
      blocks, [](const BlockTransfer& block) { return block.movement == Movement::kGather; });
  return communicator_->in_group([&](Communicator::Group& group) {
    for (const BlockTransfer& block : blocks) {
      if (gathers) {
        group.all_gather(block.source, block.destination, block.bytes, stream);
        continue;
      }
      const auto* const source = static_cast<const std::byte*>(block.source);
      auto* const destination = static_cast<std::byte*>(block.destination);
      for (int32_t peer = 0; peer < ranks(); ++peer) {
        const int64_t skipped = block.movement == Movement::kExchange ? peer * block.bytes : 0;
        group.send(source + skipped, block.bytes, peer, stream);
        group.recv(destination + peer * block.bytes, block.bytes, peer, stream);
      }
    }
  });
}

Result<void> check_device(const Device& device) {
  if (device.target().kind == compiler::TargetKind::kCuda) return {};
  return fail(Stage::kLoad, ErrorCode::kUnsupported,
              fmt::format("NCCL moves memory of GPUs, and the device is the {}", device.name()),
              "simulated ranks are those of a group of simulated GPUs: "
              "moejit_device_open_simulator_group(), moejit.SimulatorGroup, in C++ "
              "SimulatorGroup::open_transport()");
}

Result<void> check_place(const NcclPlace& place) {
  constexpr int64_t kDay = 24 * 60 * 60 * 1000;
  if (place.ranks >= 1 && place.rank >= 0 && place.rank < place.ranks && place.deadline_ms >= 1 &&
      place.deadline_ms <= kDay)
    return {};
  return fail(Stage::kLoad, ErrorCode::kInvalidValue,
              fmt::format("rank {} of {} with a deadline of {} ms, wanted a rank below their "
                          "number and 1 ms to a day",
                          place.rank, place.ranks, place.deadline_ms));
}

}  // namespace

Result<NcclId> make_nccl_id() {
  MOEJIT_TRY_ASSIGN(const NcclApi* const api, nccl_api());
  NcclUniqueId made{};
  if (const NcclResult result = api->get_unique_id(&made); result != kNcclSuccess)
    return tl::make_unexpected(nccl_error(*api, Stage::kLoad, "ncclGetUniqueId", result));
  NcclId id;
  static_assert(sizeof(id) == sizeof(made));
  std::memcpy(id.data(), made.internal, id.size());
  return id;
}

Result<std::unique_ptr<Transport>> open_nccl_transport(Device& device, const NcclPlace& place) {
  MOEJIT_TRY(check_device(device));
  MOEJIT_TRY(check_place(place));
  MOEJIT_TRY_ASSIGN(const NcclApi* const api, nccl_api());
  const EnteredDevice entered(device);
  MOEJIT_TRY(entered.check());
  MOEJIT_TRY_ASSIGN(auto communicator, Communicator::open(*api, place));
  return std::make_unique<NcclTransport>(device, std::move(communicator));
}

Result<std::unique_ptr<Transport>> adopt_nccl_communicator(Device& device, void* communicator,
                                                           int64_t deadline_ms) {
  MOEJIT_TRY(check_device(device));
  MOEJIT_TRY(check_place({.deadline_ms = deadline_ms}));
  if (communicator == nullptr)
    return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                "the communicator is null, wanted an ncclComm_t");
  MOEJIT_TRY_ASSIGN(const NcclApi* const api, nccl_api());
  MOEJIT_TRY_ASSIGN(auto adopted, Communicator::adopt(*api, communicator, deadline_ms));
  return std::make_unique<NcclTransport>(device, std::move(adopted));
}

}  // namespace moejit::runtime
