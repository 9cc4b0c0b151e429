// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/cta.h"
#include "runtime/simulator/kernel_image.h"

#include <memory>
#include <vector>

namespace moejit::runtime {

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
  Launch launch;

 private:
  PreparedLaunch(const LaunchRequest& request, const KernelImage& image, Allocations& allocations,
                 uint64_t seed);
};

}  // namespace moejit::runtime
