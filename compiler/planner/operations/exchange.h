// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/collective.h"
#include "compiler/kernels/exchange.h"
#include "compiler/plan.h"

#include <string>
#include <variant>
#include <vector>

namespace moejit::compiler {

struct Operation;

// A step of an exchange between ranks. Its reads and writes have the names of the kernel's fields
// as roles, and leaving out optional writes makes the kernel simpler.
struct ExchangeKernel {
  std::variant<ExchangeChoicesSpec, DispatchRowsSpec, DispatchPermuteSpec, RouteDispatchPermuteSpec,
               AwaitRowsSpec, CombineRowsSpec>
      spec;
  std::vector<std::string> reasons;
};

// Packs a rank's choices for all ranks. Reads topk_ids and topk_probs [T, K], writes packed_ids and
// packed_probs [T_max, K], and saved_tokens [1] if a backward call compares it.
struct PackChoices {
  PackChoicesSpec spec;
};

// Takes the choices of a rank's experts out of the choices of all ranks. Reads choice_ids and
// choice_probs [S, K], writes slot_ids and slot_probs [S, K].
struct TakeChoices {
  TakeChoicesSpec spec;
};

// Compares T with the T of the forward call. Reads saved_tokens [1], and writes tokens_status [1].
struct CompareTokens {};

// Adds what came home from all ranks. Reads results [S, H] or [S, K, H], status_of_ranks [R],
// topk_ids where it looks at choices, and dprobs_of_ranks [S, K] for dprobs. Writes output [T, H],
// dprobs [T, K] if wanted, and adds bits to status [1].
struct CombineArrived {
  CombineArrivedSpec spec;
};

// Moves blocks between ranks, a step that no kernel does. Write i is what arrives of read i. Both
// may have scales.
struct Collective {
  std::vector<Movement> movements;  // of each read
  std::vector<std::string> reasons;
};

// Returns the step of an operation that is a Collective, in front of the kernel `before`. The bytes
// of its blocks are still missing.
CollectivePlan make_collective(const Operation& operation, int32_t before);

}  // namespace moejit::compiler
