// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "compiler/plan.h"
#include "compiler/support/fork.h"
#include "runtime/bindings/c/moejit.h"
#include "runtime/device.h"

#include <array>
#include <cstdint>
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
  uint32_t used_by = 0;              // MOEJIT_USED_BY_... bits
};

// A text that is made when it is first asked for. There is no std::once_flag in it: an exception
// would go through glibc, which ends a process that has no memory for its unwinder.
struct LazyText {
  ForkMutex mutex;
  std::optional<std::string> text;
};

// Hands out a text that `make` makes when it is first asked for.
template <typename Make>
Result<void> hand_out(LazyText& lazy, const char** text, Make&& make) {
  const std::lock_guard lock(lazy.mutex);
  if (!lazy.text) lazy.text = make();
  *text = lazy.text->c_str();
  return {};
}

// What the handles of a layer and of an operation have in common, beside their plan. The device
// goes last: it outlives what it has loaded.
struct PlanHandle {
  compiler::MemoryLayout layout;
  std::string target;
  std::string json;
  std::string plan_digest;
  std::vector<CallerTensor> tensors;
  mutable LazyText plan_json;
  mutable std::array<LazyText, 2> plan_text;  // without and with the reasons

  // Where the plan is prepared.
  std::shared_ptr<runtime::Device> device;
  DLDevice place{};
};

// Reads the records of an option: paths separated by ':'; NULL: those of MOEJIT_TUNING. Returns
// null if there are none. Errors: those of compiler::read_tunings().
inline Result<std::unique_ptr<const compiler::Tuning>> read_tuning(const char* paths) {
  return compiler::read_tunings(paths == nullptr ? std::nullopt
                                                 : std::optional<std::string>(paths));
}

// Returns a tensor of the plan as callers know it, but for the calls that use it.
CallerTensor caller_tensor(const compiler::TensorPlan& tensor);

// Describe a tensor of the handle's plan, by its index or its name. Errors: those of
// moejit_layer_get_tensor() and moejit_layer_find_tensor(). `list_function` is what lists names.
Result<void> check_index(const compiler::Plan& plan, std::size_t index);
Result<void> describe_tensor(const compiler::Plan& plan, const PlanHandle& handle,
                             std::size_t index, moejit_tensor_info* info);
Result<void> describe_tensor(const compiler::Plan& plan, const PlanHandle& handle,
                             std::string_view name, std::string_view list_function,
                             moejit_tensor_info* info);

// Tells the place of a tensor of the handle's plan in a call over T tokens. Errors: those of
// moejit_layer_get_tensor_place().
Result<void> describe_place(const compiler::Plan& plan, const PlanHandle& handle, std::size_t index,
                            int64_t tokens, moejit_tensor_place* place);

}  // namespace moejit::bindings
