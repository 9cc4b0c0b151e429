// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/moejit_group.h"
#include "runtime/group.h"

#include <memory>
#include <string>

namespace moejit::bindings {
// Error kUnsupported: the plan is not of a group.
inline Result<void> check_is_of_group(const moejit_plan& plan) {
  if (plan.of_group != nullptr) return {};
  return fail(Stage::kLoad, ErrorCode::kUnsupported,
              plan.plan->subject + " is of one rank, wanted a plan of a group's layer",
              "create it with MOEJIT_KIND_GROUP_LAYER, or prepare it for a device");
}
}  // namespace moejit::bindings

struct moejit_group {
  std::shared_ptr<moejit::runtime::Device> device;
  DLDevice place{};
  std::unique_ptr<moejit::runtime::Group> group;
};
