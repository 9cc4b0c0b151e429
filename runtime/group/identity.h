// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <span>
#include <string>

namespace moejit::runtime {

// What a rank said of its plan: compiler::group_identity(), fields "name=value".
struct RankIdentity {
  int32_t rank = 0;
  std::span<const std::string> fields;
};

// Compares two identities field by field, whatever their order. Error kTensorMismatch names the
// first field that differs, the ranks, and their values.
Result<void> compare(const RankIdentity& first, const RankIdentity& second);

}  // namespace moejit::runtime
