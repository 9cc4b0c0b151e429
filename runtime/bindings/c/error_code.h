// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/bindings/c/moejit.h"

namespace moejit::bindings {

// The number that an error code has in the C interface for ever, in whatever order the C++ one is.
moejit_error_code number_of(ErrorCode code);

}  // namespace moejit::bindings
