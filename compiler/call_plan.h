// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moejit::compiler {

// What a kernel, or a call, does with a tensor.
enum class Access { kRead, kWrite, kReadWrite };
bool reads(Access access);
bool writes(Access access);

// What a call does with a block of memory. A call that writes a block needs nothing that the block
// held before.
enum class BlockUse { kNone, kRead, kWrite };

// A tensor that the caller gives to a call.
struct CallTensor {
  std::size_t slot = 0;  // index into Plan::tensors
  Access access = Access::kRead;
  bool is_optional = false;    // whether the call may leave it out; its kernels then get null
  bool is_shape_only = false;  // whether it only tells T: no kernel reads it, any address will do
  bool operator==(const CallTensor&) const = default;
};

// A kernel of a call, or a step that a transport does between two kernels.
struct CallStep {
  bool is_collective = false;
  std::size_t index = 0;  // into Plan::kernels, or Plan::collectives
  bool operator==(const CallStep&) const = default;
};

// A call of a plan: all that a runtime, a binding or a tool has to know to make it.
struct CallPlan {
  std::string name;                 // unique in the plan: "forward", "backward+add", ...
  std::vector<CallStep> steps;      // in launch order; without any, the call does nothing
  std::vector<CallTensor> tensors;  // in the order of Plan::tensors
  BlockUse workspace = BlockUse::kNone;
  BlockUse saved = BlockUse::kNone;
  BlockUse deferred = BlockUse::kNone;
  // Bytes of the workspace that the call needs over max_tokens; over fewer tokens it needs no more.
  // The workspace of a plan suffices for any call.
  int64_t workspace_bytes = 0;
  bool adds = false;             // to the gradients of weights and biases; else it overwrites them
  bool is_of_all_ranks = false;  // whether all ranks of a group make it together
  bool operator==(const CallPlan&) const = default;
};

// Returns whether the call uses a block of memory.
bool has_memory(const CallPlan& call);

// A call that other descriptions have, and what in this one rules it out.
struct AbsentCall {
  std::string name;
  std::string why;   // "the layer tiny has no backward pass"
  std::string hint;  // the field that adds it
  bool operator==(const AbsentCall&) const = default;
};

}  // namespace moejit::compiler
