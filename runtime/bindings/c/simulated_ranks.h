// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/nccl_transport.h"
#include "runtime/simulator_group.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace moejit::bindings {

// Simulated GPUs of one process, which meet by an id as GPUs do that NCCL joins.
struct SimulatedRanks {
  std::unique_ptr<runtime::SimulatorGroup> group;
  std::mutex mutex;
  // Ends of transports that ranks have not taken yet, by the id; null where a rank has taken its
  // end.
  std::map<runtime::NcclId, std::vector<std::unique_ptr<runtime::Transport>>> ends;

  // Returns a rank's end of the transport of an id. Error kInvalidValue: the rank has taken it
  // already.
  Result<std::unique_ptr<runtime::Transport>> open_transport(const runtime::NcclId& id,
                                                             int32_t rank);
};

}  // namespace moejit::bindings
