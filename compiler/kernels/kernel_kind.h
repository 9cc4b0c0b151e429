// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/emitter/kernel_text.h"
#include "compiler/param_record.h"
#include "compiler/plan.h"
#include "compiler/work.h"

#include <cstdint>
#include <vector>

namespace moejit::compiler {

// What the passes ask of a kind of kernel. The module of the kind, which has the name of its device
// skeleton, defines all of it for its spec; what one forgets does not link.
template <typename Spec>
struct KernelKind {
  // Returns threads, shared memory and CTAs per SM.
  static LaunchShape shape(const Spec& spec);
  // Returns how many CTAs T tokens give work to, whatever their routing.
  static int64_t busy(const Spec& spec, const CallBounds& bounds, int64_t tokens);
  // Returns the numbers of the parameter record.
  static std::vector<KernelNumber> numbers(const Spec& spec, const CallBounds& bounds);
  // Returns the least traffic and arithmetic of a call.
  static Work work(const Spec& spec, const CallBounds& bounds, const CallRows& rows);
  // Returns the fields of the parameter record, with what the kernel does with each.
  static const ParamRecord& record(const Spec& spec);
  // Returns what the emitted text has of its own.
  static KernelText text(const Spec& spec);
};

// A number that kernels take beside their own which check T of a backward call.
inline const KernelNumber kCallTokens{.role = "call.tokens", .dim = CallDim::kTokens};

}  // namespace moejit::compiler
