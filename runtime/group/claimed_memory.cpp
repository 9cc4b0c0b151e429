// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/claimed_memory.h"

#include "compiler/support/fork.h"

#include <cstddef>
#include <fmt/format.h>
#include <map>
#include <mutex>

namespace moejit::runtime {
namespace {

// Never destroyed: groups may outlive static objects.
ForkMutex& claims_mutex() {
  static ForkMutex& mutex = *new ForkMutex;
  return mutex;
}
std::map<const std::byte*, int64_t>& claims() {  // bytes by base, under claims_mutex()
  static auto& all = *new std::map<const std::byte*, int64_t>;
  return all;
}

}  // namespace

Result<ClaimedMemory> ClaimedMemory::claim(int32_t rank, const void* base, int64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(base);
  const std::lock_guard lock(claims_mutex());
  for (const auto& [claimed, claimed_bytes] : claims())
    if (first < claimed + claimed_bytes && claimed < first + bytes)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("the memory of rank {} at {} belongs to another group of this "
                              "process, wanted memory that no group has",
                              rank, fmt::ptr(base)),
                  "let layers share one group, destroy the other group first, or bring other "
                  "memory");
  claims().emplace(first, bytes);
  return ClaimedMemory(base);
}

ClaimedMemory::~ClaimedMemory() {
  if (base_ == nullptr) return;
  const std::lock_guard lock(claims_mutex());
  claims().erase(static_cast<const std::byte*>(base_));
}

}  // namespace moejit::runtime
