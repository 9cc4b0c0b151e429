// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/shared_choices.h"

namespace moejit::compiler {

// Appends shared experts to the choices of tokens. Reads topk_ids [T, K] and topk_probs [T, K],
// and with a gate shared_probs [T]. Writes all_ids [T, K + n] and all_probs [T, K + n].
struct SharedChoices {
  SharedChoicesSpec spec;
};

// Parts the gradients of these choices. Reads all_dprobs [T, K + n]. Writes dprobs [T, K], and with
// a gate dshared_probs [T].
struct SharedDprobs {
  SharedDprobsSpec spec;
};

}  // namespace moejit::compiler
