// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/router.h"
#include "compiler/support/json_view.h"

#include <span>
#include <string_view>

namespace moejit::compiler {

// Returns every key that "router" may have, in the order in which to_json() writes them.
std::span<const std::string_view> router_keys();

// Refuses fields of "router" that contradict each other, or that no kernel can do together.
Result<void> check_router(const JsonView& view, const RouterFormula& formula, int32_t experts,
                          int32_t top_k);

// Reads the value of "router", for so many experts, without zero experts, and choices of each
// token. Errors: a field's, kInvalidValue for fields that contradict each other, and kUnsupported
// for what no kernel can do yet; each with the JSON path.
Result<RouterFormula> read_router(const JsonView& view, int32_t experts, int32_t top_k);

}  // namespace moejit::compiler
