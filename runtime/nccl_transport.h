// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace moejit::runtime {

// What the ranks of a communicator find each other by. One rank makes it, and the caller sends its
// bytes to all others in its own way: by MPI, by torch's store, by a file.
using NcclId = std::array<std::byte, 128>;

// Makes an id. Opens libnccl.so.2, 2.18 or later, on first use. Errors: kDriverMissing without it;
// kDriver in NCCL's words.
Result<NcclId> make_nccl_id();

// Which rank opens a communicator, and until when all have to have come.
struct NcclPlace {
  NcclId id = {};
  int32_t rank = 0;
  int32_t ranks = 1;
  int64_t deadline_ms = 60000;  // of opening, and of introduce(), each; from 1 to a day
};

// Opens this rank's end of a transport over NCCL, with a communicator of its own on the GPU of the
// device, which must outlive it. Waits until all ranks have come, each a process or a thread with
// another GPU, on any hosts. Errors: kDriverMissing without libnccl.so.2; kUnsupported for a
// simulated device. kInvalidValue for ranks or a deadline out of range; kInterrupted if a rank did
// not come before the deadline; kDriver in NCCL's words.
Result<std::unique_ptr<Transport>> open_nccl_transport(Device& device, const NcclPlace& place);

// Makes a transport of a communicator that the caller has, an ncclComm_t of the same libnccl.so.2,
// on the device's GPU. The caller makes no other call with it while a step may be under way, and
// destroys it after the transport. abort() does not end its steps: the caller's ncclCommAbort()
// does. Errors: as of open_nccl_transport(), without kInterrupted; kInvalidValue for null.
Result<std::unique_ptr<Transport>> adopt_nccl_communicator(Device& device, void* communicator,
                                                           int64_t deadline_ms = 60000);

}  // namespace moejit::runtime
