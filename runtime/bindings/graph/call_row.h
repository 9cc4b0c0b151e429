// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/graph/planned_tensor.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace moejit::graph {

// One of the two blocks of quantized weights (moejit_tensor_info::quantized_block): "quantized" and
// "quantized_colwise".
struct QuantizedBlock {
  const char* name = "";
  int64_t bytes = 0;
};

// A tensor of the host that a call takes or makes: a tensor of the plan, or a block of memory.
struct CallArgument {
  enum class Kind : uint8_t { kTensor, kQuantized, kSaved, kDeferred };

  Kind kind = Kind::kTensor;
  std::string name;
  const PlannedTensor* planned = nullptr;  // of kTensor
  // The whole block of kQuantized, and the slices of it that the call uses.
  const QuantizedBlock* block = nullptr;
  std::vector<const PlannedTensor*> slices = {};
  // The slice whose old content a call reads that writes the block: the digest. NULL: none.
  const PlannedTensor* digest = nullptr;
  bool is_read = false;
  bool is_written = false;
  bool is_optional = false;
  bool is_shape_only = false;
  bool may_be_copied = false;  // if kernels cannot read it where it is
};

// A call of a plan as bindings make it.
struct CallRow {
  std::string name;
  // Tensors that the call only reads, and what it writes, in the order of the plan with the blocks
  // "saved" and "deferred" last.
  std::vector<CallArgument> reads;
  std::vector<CallArgument> writes;
  // Has what `reads` has, with the tensors of quantized weights in place of their blocks, for
  // weights that the caller keeps as codes and scales. Empty if the call reads no such block.
  std::vector<CallArgument> named_reads;
  int64_t workspace_bytes = 0;  // that the call needs over max_tokens
  bool is_of_all_ranks = false;
};

// The tensors of the caller in a plan, and its calls. Calls point to tensors and blocks.
struct PlanRows {
  std::vector<PlannedTensor> tensors;  // all of the plan
  std::array<QuantizedBlock, 2> quantized{{{.name = "quantized"}, {.name = "quantized_colwise"}}};
  std::vector<CallRow> calls;

  PlanRows() = default;
  PlanRows(const PlanRows&) = delete;
  PlanRows& operator=(const PlanRows&) = delete;
};

// Fills the rows, which are empty, from a plan with so many tensors and calls.
void read_rows(const moejit_plan* plan, const moejit_plan_info& info, PlanRows& rows);

// Returns the names of arguments, as sentences list them.
std::string names_of(const std::vector<CallArgument>& arguments);

}  // namespace moejit::graph
