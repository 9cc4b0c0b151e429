// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace moejit::compiler {

// Delays a fork() of this process while it lives. NVRTC has locks of its own, and a lock that
// another thread holds during a fork() would stay locked in the child forever. When a fork() waits,
// new gates wait for it.
class ForkGate {
 public:
  ForkGate();
  ~ForkGate();
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;
};

}  // namespace moejit::compiler
