// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tune/verify_record.h"

#include <string>

namespace moejit::cli {

// Returns "holds", "text changed", "is not offered any more" or the like, with the reason.
std::string verdict_text(const VerifiedEntry& verified);

// Return what `moejit tuning verify` prints.
std::string verification_text(const Verification& verification);
std::string verification_json(const Verification& verification);

}  // namespace moejit::cli
