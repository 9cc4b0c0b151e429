// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/planner/operations/activation.h"
#include "compiler/planner/operations/casts.h"
#include "compiler/planner/operations/exchange.h"
#include "compiler/planner/operations/gemms.h"
#include "compiler/planner/operations/router.h"
#include "compiler/planner/operations/rows.h"
#include "compiler/planner/operations/scales.h"
#include "compiler/planner/operations/shared.h"
#include "compiler/planner/phase.h"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::compiler {

// What an operation does, with all the numbers that its kernel needs except the bounds of a call.
// A module in planner/operations names the roles of its reads and writes, and defines make_kernel()
// and, where leaving out writes makes it simpler, narrow().
struct OperationKind
    : std::variant<QuantizeWeights, QuantizeMatrixRows, QuantizeRows, ScaleColumns, CastColumns,
                   Route, SplitRows, PermutePad, GroupedGemm, GroupedGemmActivation, Activate,
                   Unpermute, Transpose, QuantizeColumns, Wgrad, ActivationBackward,
                   ActivationBackwardTranspose, BiasGradient, BiasDprobs, MatrixAmax, ExpertScales,
                   CastBlocks, TakeScales, UpdateScales, RowAmax, ExchangeKernel, CastTranspose,
                   PackChoices, TakeChoices, CompareTokens, CombineArrived, CheckWeights,
                   RoutePermute, Collective, Router, RouterBackward, SharedChoices, SharedDprobs> {
  using variant::variant;
  OperationKind();
  OperationKind(const OperationKind& other);
  OperationKind(OperationKind&& other) noexcept;
  OperationKind& operator=(const OperationKind& other);
  OperationKind& operator=(OperationKind&& other) noexcept;
  ~OperationKind();
};

// A tensor that an operation reads or writes, with its scales if it has any.
struct Port {
  std::string role;
  std::string tensor;
  std::string scale_inv = {};
  bool is_optional = false;      // of a write: it is left out if nobody reads it
  bool is_intermediate = false;  // of an optional write: it stays if the caller keeps intermediates
  bool is_for_caller = false;    // whether it is there only for that caller
  bool is_repeated = false;      // of a write: it writes the values that are there already
};

// Tells whose rows an operation walks over as its tokens, in a layer of a group.
enum class TokensOf {
  kExperts,  // the layer's, or in a group the slots of all ranks
  kRank,     // the T tokens of this rank
  kChoices,  // the S * K choices of all ranks, each a token with one row
};

struct Operation {
  std::string name;  // "gemm_fc1", ...
  OperationKind kind;
  std::vector<Port> reads;
  std::vector<Port> writes;
  Phase phase = Phase::kForward;
  std::optional<BackwardHalf> half = {};
  std::optional<DispatchCall> dispatch_call = {};
  std::optional<GradientMode> gradient_mode = {};
  TokensOf tokens = TokensOf::kExperts;
};

// Return the port of that role, or null.
const Port* find_read(const Operation& operation, std::string_view role);
const Port* find_write(const Operation& operation, std::string_view role);
// Return the port of a role that the operation has.
const Port& read_of(const Operation& operation, std::string_view role);
const Port& write_of(const Operation& operation, std::string_view role);

bool reads(const Operation& operation, std::string_view tensor);
// Returns whether the operation gives the tensor new values, rather than the same values again.
bool defines(const Operation& operation, std::string_view tensor);

bool is_gemm(const Operation& operation);

template <typename Kind>
const Kind* kind_of(const Operation& operation) {
  return std::get_if<Kind>(&operation.kind);
}

// Makes an operation simpler after some of its writes were left out: it gets another name, fewer
// reads, or another kind.
void narrow(Operation& operation);

// Everything that a kernel is made from beside the operation.
struct KernelContext {
  const CallBounds& bounds;
  const Target& target;
  const PlanOptions& options;
};

// Returns the kernel of an operation that is no Collective: spec, arguments, tensor maps and
// reasons.
KernelPlan make_kernel(const Operation& operation, const KernelContext& context);
// Returns the kernel of an operation of this kind. A missing function is a link error.
template <typename Kind>
KernelPlan make_kernel(const Operation& operation, const Kind& kind, const KernelContext& context);

// Adds the tensor of a port as the argument of this role, and its scales, if any, as the argument
// "<role>_scale_inv".
void add_argument(KernelPlan& kernel, std::string role, const Port& port);

// Adds arguments for the given roles from the operation's reads and writes, under the same names.
// Skips roles that the operation does not have.
void add_arguments(KernelPlan& kernel, const Operation& operation,
                   std::initializer_list<std::string_view> roles);

}  // namespace moejit::compiler
