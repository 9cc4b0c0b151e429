// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <cstdint>

namespace moejit::compiler {

// Bounds calls before their routing is known. The sizes of tensors in a call over T tokens and the
// number of CTAs that have work follow from it.
struct CallBounds {
  int64_t max_tokens = 0;
  int32_t top_k = 1;
  int32_t groups = 0;            // groups of permuted rows: the experts of this rank
  int32_t splits_alignment = 1;  // each group begins at a multiple of it
  int64_t max_permuted_rows = 0;
  int64_t list_length = 0;    // tensors in the kernel's list; 0 if it has no list
  int64_t list_tiles = 0;     // 128x128 tiles of all tensors of the list
  int64_t list_elements = 0;  // elements of all tensors of the list
  int64_t experts = 0;        // of the model, over which choices are spread; 0: only this rank's
  // Tokens of all ranks of a group, as many in every call. They decide about permuted rows; T
  // decides only about the tensors of this rank's tokens. 0: T decides about all.
  int64_t slots = 0;
  // Whether P may be any number in a call, because the caller knows where rows go.
  bool takes_any_rows = false;
  bool operator==(const CallBounds&) const = default;
};

CallBounds call_bounds(const Layer& layer);

// A dimension whose size follows from the tokens of a call. A tensor has at most one such
// dimension.
enum class CallDim {
  kTokens,        // T
  kRows,          // P
  kColumns,       // C
  kColumnBlocks,  // C/128
};

}  // namespace moejit::compiler
