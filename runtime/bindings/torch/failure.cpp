// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/failure.h"

namespace moejit::torch {

void check_torch(Code code, const char* name) {
  if (code == 0) return;
  fail(MOEJIT_ERROR_INTERNAL, std::string("torch's function ") + name + "() failed",
       "torch has printed why; where it has no memory left, free some");
}

}  // namespace moejit::torch
