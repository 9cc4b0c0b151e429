// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/bindings/c/moejit.h"

namespace moejit::bindings {

// Returns the number that an error code keeps forever in the C interface, whatever the order of the
// C++ one.
moejit_error_code number_of(ErrorCode code);

}  // namespace moejit::bindings
