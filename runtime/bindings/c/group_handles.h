// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/moejit_group.h"
#include "runtime/group.h"

#include <memory>

struct moejit_group {
  std::shared_ptr<moejit::runtime::Device> device;
  DLDevice place{};
  std::unique_ptr<moejit::runtime::Group> group;
};
