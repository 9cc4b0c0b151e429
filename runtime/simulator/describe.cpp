// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

// Describes the race of an access with an ordinary access of another thread.
std::string race(const std::string& what, const char* verb, const OtherAccess& other) {
  return fmt::format("{} was {} by thread {} at {} with no barrier since (race)", what, verb,
                     actor_of(other.stamp), other.site);
}

}  // namespace

std::string Cta::describe(Conflict conflict, const char* verb, uint32_t bytes) const {
  const OtherAccess& other = shared_.other();
  const std::string what =
      fmt::format("{} {} bytes of shared memory, of which the byte at offset {}", verb, bytes,
                  in_cta(other.offset));
  switch (conflict) {
    case Conflict::kNone: break;
    case Conflict::kUninitialised: return what + " was never written";
    case Conflict::kUnorderedWrite:
      if (is_agent(other.stamp)) return what + describe_agent(other);
      return race(what, "written", other);
    case Conflict::kUnorderedRead:
      if (is_agent(other.stamp)) return what + describe_agent(other);
      return race(what, "read", other);
    case Conflict::kPendingCopy:
      return fmt::format(
          "{} is the target of the asynchronous copy of thread {} at {}, which no "
          "wait_async_copies has completed",
          what, actor_of(other.stamp), other.site);
    case Conflict::kMbarrier:
      return fmt::format("{} is part of the mbarrier that was initialized at {}", what, other.site);
    case Conflict::kNotFenced:
      return fmt::format(
          "{} was written by thread {} at {}, which called no fence_proxy_async between its write "
          "and the barrier",
          what, actor_of(other.stamp), other.site);
    case Conflict::kNotSwizzled:
      return fmt::format(
          "{} was copied at {} in another arrangement than rows of 128 bytes with the 128-byte "
          "swizzle",
          what, other.site);
  }
  return what;
}

// Describes an agent's access to the byte, and what would order it before now.
std::string Cta::describe_agent(const OtherAccess& other) const {
  const Agent& agent = agents_[static_cast<std::size_t>(actor_of(other.stamp) - kFirstAgent)];
  switch (agent.kind) {
    case Agent::Kind::kCopies:
      return fmt::format(
          " is the target of the tensor copy at {}: nothing orders this access after its phase, "
          "number {}, of the mbarrier at offset {}",
          other.site, epoch_of(other.stamp), in_cta(mbarriers_[agent.index].offset));
    case Agent::Kind::kStores:
      return fmt::format(
          " is the source of the tensor store of thread {} at {}: nothing orders this access after "
          "its wait_tensor_stores_read",
          agent.index, other.site);
    case Agent::Kind::kWgmma: break;
  }
  return fmt::format(
      " is an operand of the wgmma of warpgroup {} at {}: nothing orders this access after its "
      "wgmma_wait",
      agent.index, other.site);
}

}  // namespace moejit::runtime
