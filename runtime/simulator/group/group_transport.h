// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/group_device.h"
#include "runtime/transport.h"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace moejit::runtime {

// What the ends of one simulated transport share. Held under the core's lock.
struct TransportCore {
  // A step that some ranks have enqueued, and others have not yet.
  struct Step {
    std::shared_ptr<Meeting> meeting;
    std::vector<std::vector<BlockTransfer>> blocks;  // by ranks
  };

  GroupCore& group;
  std::vector<GroupDevice*> devices;
  std::deque<std::shared_ptr<Step>> steps;
  int64_t first = 0;           // number of the first of them
  std::vector<int64_t> calls;  // that each rank has made
  std::vector<std::vector<std::string>> identities;
  bool is_aborted = false;
};

// A rank's end of a transport between simulated GPUs: it copies between their memories where their
// streams meet.
class GroupTransport final : public Transport {
 public:
  GroupTransport(std::shared_ptr<TransportCore> core, int32_t rank)
      : core_(std::move(core)), rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t ranks() const override { return static_cast<int32_t>(core_->devices.size()); }
  Result<std::vector<std::vector<std::string>>> introduce(
      const std::vector<std::string>& identity) override;
  Result<void> move(std::span<const BlockTransfer> blocks, Stream stream) override;
  Result<void> check() override;
  // Ends it for all ranks.
  void abort() override;

 private:
  Result<void> check_usable() const;

  std::shared_ptr<TransportCore> core_;
  int32_t rank_;
};

}  // namespace moejit::runtime
