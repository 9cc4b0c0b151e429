// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/simulator/cta.h"
#include "templates/moejit_sim/machine.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace moejit::runtime {

// A simulated kernel, loaded into this process from bytes in memory.
class KernelImage : public LoadedKernel {
 public:
  // Loads a kernel. Errors (stage load): the bytes are no shared object of this machine, or come
  // from another moejit.
  static Result<std::unique_ptr<KernelImage>> load(const compiler::KernelBinary& binary);
  ~KernelImage() override;
  KernelImage(const KernelImage&) = delete;
  KernelImage& operator=(const KernelImage&) = delete;

  std::optional<std::size_t> param_bytes() const override { return description_->params_bytes; }
  const std::string& entry() const { return entry_; }
  const sim::KernelDescription& description() const { return *description_; }

 private:
  KernelImage() = default;

  std::string entry_;
  int file_ = -1;
  void* library_ = nullptr;
  const sim::KernelDescription* description_ = nullptr;
};

// A launch that has been checked, with copies of all that it takes from its request.
struct PreparedLaunch {
  // Checks a launch of `image`, which is null if the kernel is not the simulator's. Errors (stage
  // launch): kInternal, kInvalidValue.
  static Result<std::unique_ptr<PreparedLaunch>> make(const LaunchRequest& request,
                                                      const KernelImage* image,
                                                      const compiler::Target& target,
                                                      Allocations& allocations, uint64_t seed);

  // The copy of the record has the alignment that tensor maps in it need.
  std::vector<device::TensorMap> params;
  LaunchMemory memory;
  KernelBefore before;
  Launch launch;

 private:
  PreparedLaunch(const LaunchRequest& request, const KernelImage& image, Allocations& allocations,
                 uint64_t seed);
};

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
