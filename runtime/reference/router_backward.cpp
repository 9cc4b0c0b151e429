// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/bounded_number.h"
#include "runtime/reference/router.h"
#include "runtime/reference/router_choice.h"

#include <cmath>
#include <limits>

// Gradients in double, each with a bound of a kernel's error, doubled for higher orders. With
// u = 2^-24 the parts are:
//
//   z        scaling rounds once, u |z|; the cap's quotient, tanh (2 u) and product add 4 u |z|
//   powers   e^x is off by 2^-22, from a special function unit, and by 2 u |x|, from x's rounding
//            and its product with log2(e)
//   softmax  a power, the sum over A experts (A / 32 + 5 additions) and the division
//   others   a power and less than 8 roundings; 1 - s is off by u, however small it is
//
// Sums, products and quotients carry the errors of what they are made of.

namespace moejit::reference {
namespace {

constexpr double kPower = 0x1p-22;
constexpr double kTiny = 0x1p-120;  // products among subnormal numbers

double power_error(double x) { return kPower + 2 * kU * std::fabs(x); }

class TokenGradient {
 public:
  TokenGradient(const Router& router, const RouterInputs& inputs,
                const RouterGradientInputs& gradients, std::int64_t token)
      : router_(router),
        inputs_(inputs),
        gradients_(gradients),
        token_(token),
        ids_(inputs.ids.subspan(token * router.top_k, router.top_k)) {
    const auto logits = inputs.logits.subspan(token * router.experts, router.experts);
    capped_ = transformed_logits(router, logits);
    for (const float logit : logits) z_.push_back(transformed(logit));
    dz_.resize(z_.size());
    if (needs_softmax()) make_softmax();
  }

  void add_to(RouterGradients& result) && {
    const std::vector<Bounded> slopes = weight_gradients(result);
    if (router_.score == RouterScore::kSoftmax)
      add_softmax(slopes);
    else
      for (std::size_t k = 0; k < ids_.size(); ++k)
        if (is_choice(k)) dz_[ids_[k]] = dz_[ids_[k]] + slopes[k] * slope_of(ids_[k]);
    if (router_.has_aux) add_aux();
    if (router_.has_z) add_z();
    for (std::size_t i = 0; i < dz_.size(); ++i) {
      const bool has_none = dz_[i].value == 0.0 && dz_[i].error == 0.0;
      add(has_none ? Bounded{} : dz_[i] * transform_slope(i), result.dlogits,
          result.dlogits_bounds);
    }
  }

 private:
  // Adds a number. Errors that are not known, far beyond fp32's range, are not bounded.
  static void add(const Bounded& number, std::vector<double>& values, std::vector<double>& bounds) {
    values.push_back(number.value);
    bounds.push_back(std::isnan(number.error) ? std::numeric_limits<double>::infinity()
                                              : 2.0 * number.error + kTiny);
  }

  bool needs_softmax() const {
    return router_.score == RouterScore::kSoftmax || router_.has_z ||
           (router_.has_aux && router_.averages_softmax);
  }
  // An id that is none, or that no expert has.
  bool is_choice(std::size_t k) const { return ids_[k] >= 0 && ids_[k] < router_.experts; }

  Bounded transformed(float logit) const {
    double z = static_cast<double>(logit) * router_.logit_scale;
    double relative = router_.logit_scale == 1.0F ? 0.0 : kU;
    if (router_.softcap != 0.0F) {
      z = std::tanh(z / router_.softcap) * router_.softcap;
      relative += 4 * kU;
    }
    return {z, std::isinf(z) ? 0.0 : relative * std::fabs(z)};
  }

  // The derivative of z by the logit. 1 - (z / softcap)^2 is off by some u, however small it is.
  Bounded transform_slope(std::size_t i) const {
    const double scale = router_.logit_scale;
    if (router_.softcap == 0.0F) return {scale, 0.0};
    const double t = z_[i].value / router_.softcap;
    return {scale * (1.0 - t * t), scale * 12 * kU};
  }

  // Returns the softmax of some z.
  static std::vector<Bounded> softmax(std::span<const Bounded> z, double& largest,
                                      double& log_sum) {
    largest = -std::numeric_limits<double>::infinity();
    double largest_error = 0.0;
    for (const Bounded& one : z)
      if (one.value > largest) largest = one.value, largest_error = one.error;
    double sum = 0.0;
    for (const Bounded& one : z) sum += std::exp(one.value - largest);
    log_sum = std::log(sum);
    std::vector<Bounded> shares;
    double sum_error = kU * (static_cast<double>(z.size()) / 32.0 + 6.0);
    for (const Bounded& one : z) {
      const double share = std::exp(one.value - largest) / sum;
      const double relative = power_error(one.value - largest) + one.error + largest_error;
      shares.push_back({share, 0x1p-125 + (share == 0.0 ? 0.0 : share * relative)});
      sum_error += shares.back().error;
    }
    for (Bounded& share : shares) share.error += share.value * (sum_error + 2 * kU);
    return shares;
  }

  void make_softmax() { shares_ = softmax(z_, largest_, log_sum_); }

  // Returns a score that is not of a softmax.
  Bounded score_of(std::int64_t expert) const {
    const Bounded& z = z_[expert];
    const double relative = power_error(z.value) + 8 * kU + z.error;
    if (router_.score == RouterScore::kFunction) {
      const double slope = std::fabs(router_.function.slope(z.value));
      return {router_.function.value(z.value),
              router_.function.value_error(z.value) + slope * z.error};
    }
    // Far below 0 scores are 0 in fp32.
    if (elementwise_score(router_, capped_[expert]) == 0.0F) return {0.0, 0.0};
    const double value =
        router_.score == RouterScore::kSigmoid
            ? 1.0 / (1.0 + std::exp(-z.value))
            : std::sqrt(std::fmax(z.value, 0.0) + std::log1p(std::exp(-std::fabs(z.value))));
    return {value, std::isinf(z.value) ? 0.0 : relative * value};
  }

  // Returns the derivative of such a score by z.
  Bounded slope_of(std::int64_t expert) const {
    const Bounded& z = z_[expert];
    const Bounded score = score_of(expert);
    if (router_.score == RouterScore::kFunction)
      return {router_.function.slope(z.value),
              router_.function.slope_error(z.value) +
                  std::fabs(router_.function.slope(z.value + z.error) -
                            router_.function.slope(z.value))};
    if (score.value == 0.0) return {0.0, kTiny};
    if (router_.score == RouterScore::kSigmoid) {
      const double rest = 1.0 / (1.0 + std::exp(z.value));
      return score * Bounded{rest, score.error + kU};
    }
    const double s = 1.0 / (1.0 + std::exp(-z.value));
    return Bounded{s, s * (power_error(z.value) + 8 * kU + z.error)} / (Bounded{2.0, 0.0} * score);
  }

  std::vector<Bounded> chosen_scores() {
    std::vector<Bounded> scores(ids_.size());
    if (router_.score == RouterScore::kSoftmax && router_.is_after) {
      std::vector<Bounded> chosen;
      for (std::size_t k = 0; k < ids_.size(); ++k)
        chosen.push_back(is_choice(k) ? z_[ids_[k]]
                                      : Bounded{-std::numeric_limits<double>::infinity(), 0.0});
      double largest = 0.0, log_sum = 0.0;
      scores = softmax(chosen, largest, log_sum);
    }
    for (std::size_t k = 0; k < ids_.size(); ++k) {
      if (!is_choice(k))
        scores[k] = {};
      else if (router_.score != RouterScore::kSoftmax)
        scores[k] = score_of(ids_[k]);
      else if (!router_.is_after)
        scores[k] = shares_[ids_[k]];
    }
    return scores;
  }

  // The gradient of a choice's probability, 0 of no choice.
  double given_gradient(std::size_t k) const {
    if (!is_choice(k)) return 0.0;
    const bool is_zero = ids_[k] >= router_.experts - router_.zero_experts;
    return is_zero ? gradients_.dzero_probs[token_]
                   : gradients_.dprobs[token_ * router_.top_k + static_cast<std::int64_t>(k)];
  }

  // Returns the gradients of the chosen scores, and adds the gradients of their factors.
  std::vector<Bounded> weight_gradients(RouterGradients& result) {
    const std::vector<Bounded> scores = chosen_scores();
    chosen_ = scores;
    std::vector<Bounded> given;
    for (std::size_t k = 0; k < ids_.size(); ++k) {
      const double factor =
          inputs_.expert_scale.empty() || !is_choice(k) ? 1.0 : inputs_.expert_scale[ids_[k]];
      given.push_back(Bounded{given_gradient(k), 0.0} * Bounded{router_.scale, 0.0} *
                      Bounded{factor, 0.0});
    }
    const Bounded sum = sum_of(scores);
    const Bounded epsilon{router_.epsilon, 0.0};
    Bounded divisor{1.0, 0.0};
    if (router_.normalize == RouterNormalize::kSum) divisor = sum + epsilon;
    if (router_.normalize == RouterNormalize::kFloor)
      divisor = sum.value < epsilon.value ? epsilon : sum;
    if (!inputs_.expert_scale.empty()) add_factors(scores, divisor, result);
    if (router_.normalize == RouterNormalize::kNone) return given;
    std::vector<Bounded> products;
    for (std::size_t k = 0; k < ids_.size(); ++k) products.push_back(given[k] * scores[k]);
    Bounded common = sum_of(products) / divisor;
    if (router_.normalize == RouterNormalize::kFloor) {
      if (std::fabs(sum.value - epsilon.value) <= sum.error)
        common.error += std::fabs(common.value);
      if (sum.value < epsilon.value) common.value = 0.0;
    }
    for (Bounded& one : given) one = (one - common) / divisor;
    return given;
  }

  void add_factors(std::span<const Bounded> scores, const Bounded& divisor,
                   RouterGradients& result) const {
    for (std::size_t k = 0; k < ids_.size(); ++k) {
      const Bounded weight = scores[k] / divisor * Bounded{router_.scale, 0.0};
      const Bounded factor = is_choice(k) ? Bounded{given_gradient(k), 0.0} * weight : Bounded{};
      add(factor, result.dexpert_scale, result.dexpert_scale_bounds);
    }
  }

  void add_softmax(std::span<const Bounded> slopes) {
    std::vector<Bounded> products;
    for (std::size_t k = 0; k < ids_.size(); ++k)
      products.push_back(is_choice(k) ? slopes[k] * chosen_[k] : Bounded{});
    const Bounded dot = sum_of(products);
    if (router_.is_after) {
      for (std::size_t k = 0; k < ids_.size(); ++k)
        if (is_choice(k)) dz_[ids_[k]] = dz_[ids_[k]] + chosen_[k] * (slopes[k] - dot);
      return;
    }
    std::vector<Bounded> full(z_.size());
    for (std::size_t k = 0; k < ids_.size(); ++k)
      if (is_choice(k)) full[ids_[k]] = full[ids_[k]] + slopes[k];
    for (std::size_t i = 0; i < z_.size(); ++i) dz_[i] = dz_[i] + shares_[i] * (full[i] - dot);
  }

  void add_aux() {
    const std::size_t experts = z_.size();
    std::vector<Bounded> means = shares_, slopes;
    Bounded sum{1.0, 0.0};
    if (!router_.averages_softmax) {
      means.clear();
      for (std::size_t i = 0; i < experts; ++i) means.push_back(score_of(i));
      sum = sum_of(means) + Bounded{1e-20F, 0.0};
      for (Bounded& mean : means) mean = mean / sum;
    }
    std::vector<Bounded> given, products;
    for (std::size_t i = 0; i < experts; ++i) {
      given.push_back(Bounded{gradients_.aux_coefficient, 0.0} *
                      Bounded{static_cast<double>(gradients_.counts[i]),
                              kU * std::fabs(static_cast<double>(gradients_.counts[i]))});
      products.push_back(given.back() * means[i]);
    }
    const Bounded dot = sum_of(products);
    for (std::size_t i = 0; i < experts; ++i) {
      const Bounded factor =
          router_.averages_softmax ? means[i] : slope_of(static_cast<std::int64_t>(i)) / sum;
      dz_[i] = dz_[i] + factor * (given[i] - dot);
    }
  }

  void add_z() {
    const Bounded lse{largest_ + log_sum_,
                      4 * kU * (std::fabs(largest_) + std::fabs(log_sum_)) + kPower};
    const Bounded factor = Bounded{2.0, 0.0} * Bounded{gradients_.z_coefficient, 0.0} * lse;
    for (std::size_t i = 0; i < z_.size(); ++i) dz_[i] = dz_[i] + factor * shares_[i];
  }

  const Router& router_;
  const RouterInputs& inputs_;
  const RouterGradientInputs& gradients_;
  std::int64_t token_;
  std::span<const std::int64_t> ids_;
  std::vector<float> capped_;  // z in fp32
  std::vector<Bounded> z_, dz_, shares_, chosen_;
  double largest_ = 0.0, log_sum_ = 0.0;
};

}  // namespace

RouterGradients router_backward(const Router& router, const RouterInputs& inputs,
                                const RouterGradientInputs& gradients) {
  Router of = router;
  if (is_sum_one(of)) {
    of.is_after = true;
    of.normalize = RouterNormalize::kNone;
  }
  RouterGradients result;
  const std::int64_t tokens = std::ssize(inputs.logits) / router.experts;
  for (std::int64_t token = 0; token < tokens; ++token)
    TokenGradient(of, inputs, gradients, token).add_to(result);
  return result;
}

}  // namespace moejit::reference
