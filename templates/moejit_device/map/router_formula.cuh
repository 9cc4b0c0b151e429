// SPDX-License-Identifier: Apache-2.0
#pragma once

// The formula of a router as a type. An emitted kernel has a type with this base, and with the
// members in it that differ:
//
//   struct Formula : UsualRouterFormula {
//     static constexpr auto kScore = RouterScore::kSigmoid;
//     static constexpr int32_t kGroups = 8;
//   };
//
// With RouterScore::kExpression it also has
//   static float value(float logit)
// and in a backward kernel
//   static float slope(float logit)

#include "moejit_device/core/score.cuh"

namespace moejit::device {

enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus, kExpression };
enum class RouterNormalize { kNone, kSum, kFloor };

struct UsualRouterFormula {
  static constexpr auto kScore = RouterScore::kSoftmax;
  static constexpr bool kIsAfter = false;       // whether scores are made of the chosen alone
  static constexpr bool kOrdersLogits = false;  // whether logits order the choice, not scores
  static constexpr bool kHasBias = false;       // which is added to what orders the choice
  static constexpr int32_t kGroups = 1;
  static constexpr int32_t kGroupsKept = 1;
  static constexpr int32_t kGroupTerms = 1;  // values that a group's score adds up
  static constexpr bool kFillsZero = false;  // whether other groups' experts count as 0
  static constexpr auto kNormalize = RouterNormalize::kNone;
  static constexpr float kEpsilon = 0.0f;
  static constexpr float kScale = 1.0f;
  static constexpr float kLogitScale = 1.0f;
  static constexpr float kSoftcap = 0.0f;  // 0: none
  static constexpr bool kHasExpertScale = false;
  static constexpr bool kHasAux = false;           // whether scores are added up
  static constexpr bool kAveragesSoftmax = false;  // whether these are a softmax of all logits
  static constexpr bool kCountsUnbiased = false;   // whether the largest logits are counted too
  static constexpr bool kHasZ = false;
  static constexpr int32_t kZeroExperts = 0;  // the last ones
  static constexpr bool kHasGivenIds = false;
};

// What follows from a formula.
template <typename Formula>
struct RouterFacts {
  static constexpr bool kIsSoftmax = Formula::kScore == RouterScore::kSoftmax;
  static constexpr bool kOrdersScores = !Formula::kOrdersLogits && !Formula::kHasGivenIds;
  // Weights that a softmax over the chosen gives have the sum 1.
  static constexpr bool kSumsToOne =
      kIsSoftmax && Formula::kNormalize == RouterNormalize::kSum && Formula::kEpsilon == 0.0f;
  static constexpr bool kIsOfChosen = kIsSoftmax && (Formula::kIsAfter || kSumsToOne);
  static constexpr bool kNormalizes = Formula::kNormalize != RouterNormalize::kNone && !kSumsToOne;
  // Whether the softmax of all logits is the weights, or the loss's scores, or orders the choice.
  static constexpr bool kHasSoftmaxOfAll = (kIsSoftmax && (!kIsOfChosen || kOrdersScores)) ||
                                           Formula::kAveragesSoftmax || Formula::kHasZ;

  MOEJIT_DEVICE static float transformed(float logit) {
    float z = logit;
    if constexpr (Formula::kLogitScale != 1.0f) z = ptx::multiply(z, Formula::kLogitScale);
    if constexpr (Formula::kSoftcap != 0.0f)
      z = ptx::multiply(score_tanh(ptx::divide(z, Formula::kSoftcap)), Formula::kSoftcap);
    return z;
  }

  // The score of a logit, if that is no softmax.
  MOEJIT_DEVICE static float score(float z) {
    if constexpr (Formula::kScore == RouterScore::kSigmoid) {
      return score_sigmoid(z);
    } else if constexpr (Formula::kScore == RouterScore::kSqrtSoftplus) {
      return score_sqrt_softplus(z);
    } else if constexpr (Formula::kScore == RouterScore::kExpression) {
      return Formula::value(z);
    } else {
      return z;
    }
  }

  // The derivative of such a score.
  MOEJIT_DEVICE static float slope(float z, float score) {
    if constexpr (Formula::kScore == RouterScore::kSigmoid) {
      return ptx::multiply(score, ptx::add(1.0f, -score));
    } else if constexpr (Formula::kScore == RouterScore::kSqrtSoftplus) {
      return score == 0.0f ? 0.0f : ptx::divide(score_sigmoid(z), ptx::add(score, score));
    } else if constexpr (Formula::kScore == RouterScore::kExpression) {
      return Formula::slope(z);
    } else {
      return 0.0f;
    }
  }

  // A gradient of z as one of the logit.
  MOEJIT_DEVICE static float of_logit(float gradient, float z) {
    if constexpr (Formula::kSoftcap != 0.0f) {
      const float ratio = ptx::divide(z, Formula::kSoftcap);
      gradient = ptx::multiply(gradient, ptx::fused_multiply_add(-ratio, ratio, 1.0f));
    }
    if constexpr (Formula::kLogitScale != 1.0f)
      gradient = ptx::multiply(gradient, Formula::kLogitScale);
    return gradient;
  }
};

}  // namespace moejit::device
