// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "compiler/support/fork.h"
#include "runtime/bindings/c/moejit.h"
#include "runtime/device.h"
#include "runtime/prepared_plan.h"

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::bindings {

// What the plan's tensor of the same index is to callers.
struct CallerTensor {
  std::vector<int64_t> shape;
  std::vector<const char*> symbols;  // into the plan
  int64_t offset = -1;
  int64_t quantized_block = -1;
  int64_t quantized_offset = -1;
};

// A text that is made when it is first asked for. It uses no std::once_flag: an exception would go
// through glibc, which ends a process that has no memory for its unwinder.
struct LazyText {
  std::function<std::string()> make;
  ForkMutex mutex;
  std::optional<std::string> text;

  const char* get() {
    const std::lock_guard lock(mutex);
    if (!text) text = make();
    return text->c_str();
  }
};

}  // namespace moejit::bindings

// A plan, and what the library hands out about it. The device is destroyed after `prepared`: it
// must outlive what it has loaded.
struct moejit_plan {
  std::shared_ptr<const moejit::compiler::Plan> plan;
  moejit_kind kind = MOEJIT_KIND_LAYER;
  std::string name, target, description, plan_digest, identity;
  bool has_backward = false;
  moejit::compiler::MemoryLayout layout;
  std::vector<moejit::bindings::CallerTensor> tensors;
  std::array<int64_t, 2> quantized_bytes{};  // by CallerTensor::quantized_block
  std::vector<std::vector<moejit_call_tensor>> calls;
  mutable moejit::bindings::LazyText json;
  mutable std::array<moejit::bindings::LazyText, 2> text;  // without and with the reasons

  // Where the plan is prepared.
  std::shared_ptr<moejit::runtime::Device> device;
  DLDevice place{};
  std::unique_ptr<moejit::runtime::PreparedPlan> prepared;
};
