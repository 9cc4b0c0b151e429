// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_router.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <string_view>
#include <vector>

namespace moejit::testing {
namespace {

constexpr const char* kExpressions[] = {
    "sigmoid(logit)", "exp(-abs(logit))", "1 / (1 + logit * logit)", "2 + tanh(logit)",
    "where(logit < 0, 0.5 * exp(logit), 1 - 0.5 * exp(-logit))"};

class RouterMaker {
 public:
  explicit RouterMaker(SeededRandom& random) : random_(random) {}

  RandomRouter make() {
    is_careless_ = random_.in_percent(8);
    choose_sizes();
    return add_fields();
  }
  RandomRouter make_for(int64_t experts, int64_t top_k) {
    router_ = {.experts = experts, .top_k = top_k};
    has_zero_experts_ = false;
    return add_fields();
  }

 private:
  RandomRouter add_fields() {
    add_score();
    is_given_ = random_.in_percent(12);
    if (is_given_) add("ids", "\"given\"");
    has_bias_ = wants(45, !is_given_);
    if (has_bias_) add("bias", "true");
    add_groups();
    add_weights();
    add_losses();
    if (random_.in_percent(30)) add("logits_dtype", "\"bf16\"");
    if (random_.in_percent(15)) add("logit_scale", "0.37");
    if (random_.in_percent(15)) add("softcap", random_.in_percent(50) ? "2.5" : "30");
    router_.json = fmt::format("{{{}}}", fmt::join(fields_, ", "));
    return router_;
  }
  void add(std::string_view key, std::string_view value) {
    fields_.push_back(fmt::format("\"{}\": {}", key, value));
  }
  // Returns whether to add something, in so many percent of the cases in which it is allowed.
  bool wants(int64_t percent, bool is_allowed) {
    return random_.in_percent(percent) && (is_allowed || is_careless_);
  }

  void choose_sizes() {
    constexpr int64_t kUsual[] = {8, 16, 32, 60, 64, 96, 128, 160, 256, 384, 512, 1024};
    router_.experts = random_.in_percent(60) ? random_.pick(kUsual) : random_.between(1, 130);
    const int64_t most = std::min<int64_t>(32, router_.experts);
    router_.top_k = random_.between(1, random_.in_percent(70) ? std::min<int64_t>(8, most) : most);
  }

  void add_score() {
    constexpr const char* kScores[] = {"softmax", "sigmoid", "sqrtsoftplus"};
    is_expression_ = random_.in_percent(15);
    if (is_expression_)
      add("score", fmt::format("{{\"expression\": \"{}\"}}", random_.pick(kExpressions)));
    else
      add("score", fmt::format("\"{}\"", random_.pick(kScores)));
    is_after_ = random_.in_percent(30);
    if (is_after_) add("when", "\"after\"");
    const bool is_said = wants(15, !is_after_);
    if (is_said) add("order", random_.in_percent(60) || is_careless_ ? "\"logits\"" : "\"scores\"");
    orders_by_logits_ = is_after_ || (is_said && fields_.back().ends_with("\"logits\""));
  }

  void add_groups() {
    constexpr int64_t kGroups[] = {2, 3, 4, 5, 8, 16, 32};
    groups_ = random_.pick(kGroups);
    const int64_t size = router_.experts / groups_;
    const bool fits = size * groups_ == router_.experts && router_.top_k <= router_.experts;
    if (!wants(45, fits && !is_given_)) return void(groups_ = 1);
    const int64_t least =
        std::min(groups_, (router_.top_k + size - 1) / std::max<int64_t>(size, 1));
    const int64_t kept =
        is_careless_ ? random_.between(1, groups_) : random_.between(least, groups_);
    add("groups", std::to_string(groups_));
    add("groups_kept", std::to_string(kept));
    const char* score = size == 1 || random_.in_percent(40) ? "\"max\"" : "\"top2\"";
    if (kept <= router_.top_k && random_.in_percent(30)) score = "\"sum\"";
    add("group_score", score);
    if (wants(30, !orders_by_logits_)) add("group_fill", "\"zero\"");
  }

  void add_weights() {
    const int64_t kind = random_.between(0, 2);
    if (kind == 1) add("normalize", "\"sum\"");
    if (kind == 1 && random_.in_percent(60)) add("epsilon", "1e-20");
    if (kind == 2) add("normalize", "\"floor\"");
    if (kind != 1 && wants(100, kind == 2))
      add("epsilon", random_.in_percent(50) ? "1e-12" : "0.7");
    if (random_.in_percent(40)) add("scale", "2.5");
    if (random_.in_percent(20)) add("expert_scale", "true");
    const int64_t most_zeros = std::min<int64_t>(1024 - router_.experts, 70);
    if (random_.in_percent(20) && has_zero_experts_ && groups_ == 1 && !is_given_ && most_zeros > 0)
      add("zero_experts", std::to_string(random_.between(1, most_zeros)));
  }

  void add_losses() {
    if (random_.in_percent(35)) add("z", "true");
    if (!random_.in_percent(45)) return;
    const bool can_be_unbiased =
        !is_given_ && (has_bias_ || groups_ > 1 || (is_expression_ && !orders_by_logits_));
    add("aux", wants(50, can_be_unbiased) ? "\"unbiased\"" : "\"chosen\"");
    if (is_expression_ || random_.in_percent(25)) add("aux_score", "\"softmax\"");
  }

  SeededRandom& random_;
  RandomRouter router_;
  std::vector<std::string> fields_;
  int64_t groups_ = 1;
  bool is_careless_ = false, is_expression_ = false, is_after_ = false, is_given_ = false;
  bool has_bias_ = false, orders_by_logits_ = false, has_zero_experts_ = true;
};

}  // namespace

RandomRouter random_router(SeededRandom& random) { return RouterMaker(random).make(); }

std::string random_router_of(SeededRandom& random, int64_t experts, int64_t top_k) {
  return RouterMaker(random).make_for(experts, top_k).json;
}

}  // namespace moejit::testing
