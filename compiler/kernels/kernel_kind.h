// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/emitter/kernel_text.h"
#include "compiler/param_record.h"
#include "compiler/plan.h"
#include "compiler/work.h"

#include <cstdint>
#include <vector>

namespace moejit::compiler {

// What planner, runtime and emitter ask of a kind of kernel. The module of the kind, named after
// its device skeleton, defines all functions for its spec; a missing function is a link error.
template <typename Spec>
struct KernelKind {
  // Returns threads, shared memory and CTAs per SM, and whether CTAs walk.
  static LaunchShape shape(const Spec& spec);
  // Returns how many CTAs have work in a call over T tokens, whatever their routing.
  static int64_t busy(const Spec& spec, const CallBounds& bounds, int64_t tokens);
  // Returns the numbers of the parameter record.
  static std::vector<KernelNumber> numbers(const Spec& spec, const CallBounds& bounds);
  // Returns the least traffic and arithmetic of a call.
  static Work work(const Spec& spec, const CallBounds& bounds, const CallRows& rows);
  // Returns the fields of the parameter record, with the kernel's access to each.
  static const ParamRecord& record(const Spec& spec);
  // Returns the parts of the emitted text that are specific to this kind.
  static KernelText text(const Spec& spec);
};

// The number that kernels get if they check the T of a backward call.
inline const KernelNumber kCallTokens{.role = "call.tokens", .dim = CallDim::kTokens};

}  // namespace moejit::compiler
