// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tune/verify_record.h"

#include <string>

namespace moejit::cli {

// Return what `moejit tuning verify` prints.
std::string verification_text(const Verification& verification);
std::string verification_json(const Verification& verification);

}  // namespace moejit::cli
