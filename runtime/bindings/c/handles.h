// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/plan_handle.h"
#include "runtime/engine.h"

#include <memory>
#include <string>

// The contents of the opaque handles of the C interface. Strings and arrays that they hand out live
// here.

namespace moejit::bindings {
struct SimulatedRanks;
}  // namespace moejit::bindings

struct moejit_device {
  std::shared_ptr<moejit::runtime::Device> device;  // shared with its layers
  std::shared_ptr<moejit::bindings::SimulatedRanks>
      ranks;  // if the device is one of them; `rank` says which
  int32_t rank = 0;
  std::string name;
  std::string target;
  DLDevice place{};
};

struct moejit_engine {
  std::unique_ptr<moejit::runtime::Engine> engine;
  std::string cache;
};
