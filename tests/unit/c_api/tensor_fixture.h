// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/call_tensors.h"
#include "runtime/bindings/c/plan_handle.h"

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace moejit::testing {

// A plan of `count` inputs t0, t1, ... F32 [4, 2] on a device, and a DLPack tensor for each.
struct TensorFixture {
  TensorFixture(std::size_t count, DLDevice place) {
    plan->subject = "the layer some";
    plan->calls.push_back({.name = "forward"});
    layer.plan = plan;
    layer.place = place;
    for (std::size_t i = 0; i < count; ++i) {
      plan->tensors.push_back({.name = "t" + std::to_string(i),
                               .dtype = compiler::DType::kF32,
                               .shape = {{"A", 4}, {"B", 2}},
                               .role = compiler::TensorRole::kInput});
      plan->calls[0].tensors.push_back({.slot = i});
      tensors.push_back({.data = memory.data(),
                         .device = place,
                         .ndim = 2,
                         .dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
                         .shape = shape.data()});
    }
    for (std::size_t i = 0; i < count; ++i)
      named.push_back({plan->tensors[i].name.c_str(), &tensors[i]});
  }

  alignas(16) std::array<std::byte, 32> memory{};
  std::array<int64_t, 2> shape = {4, 2};
  std::shared_ptr<compiler::Plan> plan = std::make_shared<compiler::Plan>();
  moejit_plan layer;
  std::deque<DLTensor> tensors;
  std::vector<moejit_tensor> named;
};

}  // namespace moejit::testing
