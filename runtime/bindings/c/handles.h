// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "compiler/plan.h"
#include "compiler/support/fork.h"
#include "runtime/bindings/c/moejit.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/prepared_layer.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// What the opaque handles of the C interface are. Strings and arrays that it hands out live here.

struct moejit_device {
  std::shared_ptr<moejit::runtime::Device> device;  // its layers keep it too
  std::string name;
  std::string target;
  DLDevice place{};
};

struct moejit_engine {
  std::unique_ptr<moejit::runtime::Engine> engine;
  std::string cache;
};

namespace moejit::bindings {

// What the plan's tensor of the same index is to callers.
struct LayerTensor {
  std::vector<int64_t> shape;
  std::vector<const char*> symbols;  // into the plan
  uint32_t used_by = 0;              // MOEJIT_USED_BY_... bits
};

// A text that is made when it is first asked for. There is no std::once_flag in it: an exception
// would go through glibc, which ends a process that has no memory for its unwinder.
struct LazyText {
  ForkMutex mutex;
  std::optional<std::string> text;
};

}  // namespace moejit::bindings

struct moejit_layer {
  moejit::compiler::LayerPlan plan;
  moejit::compiler::MemoryLayout layout;
  std::string target;
  std::string json;
  std::string plan_digest;
  std::vector<moejit::bindings::LayerTensor> tensors;
  mutable moejit::bindings::LazyText plan_json;
  mutable std::array<moejit::bindings::LazyText, 2> plan_text;  // without and with the reasons

  // Of prepared layers. Destroyed in reverse order: the device outlives what it has loaded.
  std::shared_ptr<moejit::runtime::Device> device;
  DLDevice place{};
  std::unique_ptr<moejit::runtime::PreparedLayer> prepared;
};
