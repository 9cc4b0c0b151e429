// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "runtime/launch/turn.h"

#include <cstdint>

namespace moejit::runtime {

// The layout of a plan's last call, which the next one takes if it has as many tokens.
class KeptLayout {
 public:
  // Calls `use` with the layout of a call over T tokens, and returns what it returns.
  template <typename Use>
  auto with(const compiler::MemoryLayout& layout, int64_t tokens, const Use& use) {
    const Turn turn(is_taken_);
    if (!turn.is_owner()) return use(layout.at(tokens));
    if (tokens_ != tokens) {
      kept_ = layout.at(tokens);
      tokens_ = tokens;
    }
    return use(kept_);
  }

 private:
  TakenFlag is_taken_ = false;
  int64_t tokens_ = -1;  // of kept_
  compiler::CallLayout kept_;
};

}  // namespace moejit::runtime
