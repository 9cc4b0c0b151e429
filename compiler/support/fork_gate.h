// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace moejit {

// Delays a fork() of this process while it lives. NVRTC and the dynamic linker have locks of their
// own. A lock that another thread holds during a fork() would stay locked in the child forever.
// When a fork() waits, new gates wait for it: a thread has one at a time, and no mutex of a
// ForkHandler.
class ForkGate {
 public:
  ForkGate();
  ~ForkGate();
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;
};

}  // namespace moejit
