// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/group_plan.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/moejit_group.h"
#include "runtime/group_layer.h"

#include <memory>
#include <string>

struct moejit_group_layer : moejit::bindings::PlanHandle {
  moejit::compiler::GroupPlan plan;
  moejit::compiler::Plan callers;  // has the tensors of callers alone
  std::string identity;
  std::unique_ptr<moejit::runtime::GroupLayer> prepared;
};

struct moejit_group {
  std::shared_ptr<moejit::runtime::Device> device;
  DLDevice place{};
  std::unique_ptr<moejit::runtime::Group> group;
};
