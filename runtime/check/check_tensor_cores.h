// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/reference/tensor_core.h"
#include "templates/moejit_device/params/measure_params.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::check {

// How the tensor cores of a target are expected to add products.
struct AdditionRule {
  std::string target;  // where several have the rule, the first: "cuda:sm_80"
  reference::TensorCoreRule rule;
};

// Returns the rules of all targets, each once: first the rule of `target`.
std::vector<AdditionRule> addition_rules(const compiler::Target& target);

// How a device's sums of one question compare with the rules.
struct TensorCoreCheck {
  device::ProductFormats formats = device::ProductFormats::kBf16;
  std::string_view question;
  int64_t sums = 0;
  std::vector<int64_t> differing;  // by rule: how many of these sums have other bits
};

// Asks the tensor cores of a device all questions, with `problems` products each, in all formats
// that grouped GEMMs multiply. Compares each bit of each sum with each rule. Errors: of the
// compiler, the cache, the device.
Result<std::vector<TensorCoreCheck>> check_tensor_cores(const std::vector<AdditionRule>& rules,
                                                        int64_t problems, runtime::Engine& engine,
                                                        runtime::Device& device);

// Returns the formats of A and B: "e5m2 x e4m3".
std::string_view formats_text(device::ProductFormats formats);

}  // namespace moejit::check
