// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/target.h"
#include "runtime/device.h"
#include "runtime/driver/context.h"

#include <cstdint>
#include <string>

namespace moejit::runtime {

// Facts about a GPU, for which the driver is asked once.
struct GpuProperties {
  std::string name;
  int32_t sm_count = 0;
  int32_t most_shared_bytes = 0;  // dynamic and static, per CTA
  compiler::ComputeCapability capability;
  compiler::Target target;  // of the architecture that is made for this capability
  GpuFacts facts;
};

// Returns the properties of the context's GPU. Errors: kUnsupported if no target is for
// its compute capability; kNoDevice; kDriver.
Result<GpuProperties> gpu_properties(const Context& context);

}  // namespace moejit::runtime
