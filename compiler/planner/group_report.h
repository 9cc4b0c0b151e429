// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/json_text.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Return the section about the group of a plan, as text for people and as JSON.
std::string group_text(const Plan& plan, int32_t width);
Json group_json(const Plan& plan);

}  // namespace moejit::compiler
