// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/ranks_state.h"

#include <cstring>

namespace moejit::runtime {

void RanksState::land(const PeerStore& store) {
  std::memcpy(reinterpret_cast<void*>(store.address), store.value, store.bytes);
  memory->mark_landed(store.address, store.bytes);
  flags.forget(store.address, store.bytes);
  flags.changed(store.address, store.bytes);
}

}  // namespace moejit::runtime
