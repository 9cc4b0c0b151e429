// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/ranks_state.h"

#include "runtime/simulator/cta.h"

#include <cstring>

namespace moejit::runtime {

const Flags::Told* Flags::find(uintptr_t word) const {
  const auto found = told_.find(word);
  return found == told_.end() ? nullptr : &found->second;
}

void Flags::forget(uintptr_t address, uint64_t bytes) {
  if (told_.empty()) return;
  for (uintptr_t word = address & ~uintptr_t{3}; word < address + bytes; word += 4) {
    told_.erase(word);
  }
}

template <typename IsWanted>
void Flags::wake_if(IsWanted is_wanted) {
  for (std::size_t i = 0; i < waiters_.size();) {
    if (!is_wanted(waiters_[i])) {
      ++i;
      continue;
    }
    waiters_[i].cta->wake(waiters_[i].thread);
    waiters_[i] = waiters_.back();
    waiters_.pop_back();
  }
}

void Flags::changed(uintptr_t address, uint64_t bytes) {
  ++changes_;
  wake_if([&](const Waiter& waiter) {
    return waiter.word + 4 > address && waiter.word < address + bytes;
  });
}

void Flags::wake_all() {
  wake_if([](const Waiter&) { return true; });
}

void RanksState::land(const PeerStore& store) {
  std::memcpy(reinterpret_cast<void*>(store.address), store.value, store.bytes);
  memory->mark_landed(store.address, store.bytes);
  flags.forget(store.address, store.bytes);
  flags.changed(store.address, store.bytes);
}

}  // namespace moejit::runtime
