// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_document.h"

namespace moejit::compiler {

// Reads JSON as parse_json() does, and as Python's json module writes it: NaN, Infinity and
// -Infinity, which the standard does not have, become null. Configurations that older versions of
// the transformers library saved have them.
Result<JsonDocument> parse_python_json(std::string_view text, const JsonOptions& options);

}  // namespace moejit::compiler
