// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/expression.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// The sizes that kernels of a router can have: all experts, with zero experts, and choices a token.
inline constexpr int32_t kMaxRouterExperts = 1024;
inline constexpr int32_t kMaxRouterTopK = 32;
inline constexpr int32_t kMaxRouterGroups = 32;

// What makes scores of logits.
enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus, kExpression };

// When scores are made.
enum class RouterWhen {
  kBefore,  // of all experts, before the choice
  kAfter,   // of the chosen experts alone, after the choice
};

// What orders the choice, before the bias is added.
enum class RouterOrder { kScores, kLogits };

// What orders groups of experts: their largest value, the sum of their two largest ones, or the sum
// of their floor(K / groups_kept) largest ones.
enum class GroupScore { kMax, kTop2, kSum };

// What experts of groups that are not kept count as.
enum class GroupFill { kMinusInfinity, kZero };

// What the weights of a token's choices are divided by, with s their sum.
enum class RouterNormalize {
  kNone,
  kSum,    // s + epsilon
  kFloor,  // max(s, epsilon)
};

// Which choices the load-balancing loss counts.
enum class AuxCounts {
  kNone,      // there is no such loss
  kChosen,    // the choices that are routed
  kUnbiased,  // the K largest logits, without bias and groups
};

// What the load-balancing loss adds up for each expert.
enum class AuxScore {
  kOwn,      // the router's scores; if they are no softmax, divided by their sum over experts
  kSoftmax,  // the softmax of the logits, whatever the scores are
};

// Where a token's choices come from.
enum class RouterIds {
  kChosen,  // the router chooses
  kGiven,   // the caller brings them
};

// A router as docs/router.md describes it, with every field under the same name; read_router()
// guarantees the ranges and combinations that the page states. Numbers are rounded to fp32 where
// they are used.
struct RouterFormula {
  RouterScore score = RouterScore::kSoftmax;
  Expression expression = 0.0;  // over `logit`, of kExpression; else 0
  RouterWhen when = RouterWhen::kBefore;
  RouterOrder order = RouterOrder::kScores;  // kLogits if scores are made after the choice
  bool has_bias = false;                     // JSON: "bias"
  int32_t groups = 1;                        // divides the experts
  int32_t groups_kept = 1;
  GroupScore group_score = GroupScore::kTop2;
  GroupFill group_fill = GroupFill::kMinusInfinity;
  RouterNormalize normalize = RouterNormalize::kNone;
  double epsilon = 0.0;
  double scale = 1.0;                // above 0
  double logit_scale = 1.0;          // above 0
  double softcap = 0.0;              // 0: none
  bool has_expert_scale = false;     // JSON: "expert_scale"
  DType logits_dtype = DType::kF32;  // or kBF16; of dlogits too
  AuxCounts aux = AuxCounts::kNone;
  AuxScore aux_score = AuxScore::kOwn;
  bool z = false;            // whether there is a z loss
  int32_t zero_experts = 0;  // the last ones of the logits
  RouterIds ids = RouterIds::kChosen;

  bool operator==(const RouterFormula&) const = default;
};

// Returns whether transformed logits, plus the bias if there is one, order the choice. They do if
// the formula says so, and where scores only rise with logits.
bool orders_by_logits(const RouterFormula& formula);

// Returns whether the load-balancing loss adds up a softmax.
bool averages_softmax(const RouterFormula& formula);

// Returns how many values of a group its score adds up.
int32_t group_score_terms(const RouterFormula& formula, int32_t top_k);

std::string_view to_string(RouterScore score);
std::string_view to_string(RouterWhen when);
std::string_view to_string(RouterOrder order);
std::string_view to_string(GroupScore score);
std::string_view to_string(GroupFill fill);
std::string_view to_string(RouterNormalize normalize);
std::string_view to_string(AuxCounts counts);
std::string_view to_string(AuxScore score);
std::string_view to_string(RouterIds ids);

// Returns the value of a description's "router" on one line: an object with the fields that do not
// have their defaults. read_router() reads back an equal record.
std::string to_json(const RouterFormula& formula);

}  // namespace moejit::compiler
