// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace moejit::compiler {

// While one of these lives, a fork() of this process waits: NVRTC has locks of its own, and one
// that another thread holds at the time would stay locked in the child for ever. Once a fork()
// waits, the next ones wait for it.
class ForkGate {
 public:
  ForkGate();
  ~ForkGate();
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;
};

}  // namespace moejit::compiler
