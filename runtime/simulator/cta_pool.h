// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/cta.h"

#include <memory>
#include <mutex>
#include <vector>

namespace moejit::runtime {

// Keeps CTAs from launch to launch: their stacks and records are already in memory.
class CtaPool {
 public:
  std::unique_ptr<Cta> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Cta> cta = std::move(idle_.back());
        idle_.pop_back();
        return cta;
      }
    }
    std::unique_ptr<StackSlab> slab = StackSlab::create();
    return slab == nullptr ? nullptr : std::make_unique<Cta>(std::move(slab));
  }
  void give_back(std::unique_ptr<Cta> cta) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(cta));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Cta>> idle_;
};

}  // namespace moejit::runtime
