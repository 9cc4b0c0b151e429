// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/verify_record.h"

#include <string>

namespace moejit::cli {

// Return what `moejit tuning verify` prints.
std::string verification_text(const tune::Verification& verification);
std::string verification_json(const tune::Verification& verification);

}  // namespace moejit::cli
