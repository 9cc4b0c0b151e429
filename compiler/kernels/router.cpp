// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/router.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/router_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

namespace {

using device::RouterBackwardParams;
using device::RouterParams;
using enum Access;

std::string router_words(std::string_view name, const auto& s) {
  return fmt::format("{} experts={} top_k={} warps={}{} router={}", name, s.experts, s.top_k,
                     s.warps, s.topk_ids == DType::kI64 ? " topk_ids=I64" : "", to_json(s.formula));
}

// With `ids` written it is the router that chooses, otherwise the caller.
constexpr std::array<RecordTensor, 12> router_pointers(Access ids) {
  return {{
      MOEJIT_POINTER(RouterParams, logits, kRead),
      MOEJIT_POINTER(RouterParams, router_bias, kRead),
      MOEJIT_POINTER(RouterParams, expert_scale, kRead),
      {"topk_ids", offsetof(RouterParams, topk_ids), ids},
      MOEJIT_POINTER(RouterParams, topk_probs, kWrite),
      MOEJIT_POINTER(RouterParams, chosen_ids, kWrite),
      MOEJIT_POINTER(RouterParams, zero_probs, kWrite),
      MOEJIT_POINTER(RouterParams, counts, kReadWrite),
      MOEJIT_POINTER(RouterParams, unbiased_counts, kReadWrite),
      MOEJIT_POINTER(RouterParams, score_sums, kReadWrite),
      MOEJIT_POINTER(RouterParams, z_sum, kReadWrite),
      MOEJIT_POINTER(RouterParams, status, kReadWrite),
  }};
}

constexpr std::array kChoosingPointers = router_pointers(kWrite);
constexpr std::array kGivenPointers = router_pointers(kRead);
constexpr std::array kRouterNumbers = {MOEJIT_NUMBER(RouterParams, tokens)};

constexpr ParamRecord kChoosingRecord{
    "router", sizeof(RouterParams), kChoosingPointers, {}, kRouterNumbers};
constexpr ParamRecord kGivenRecord{
    "router", sizeof(RouterParams), kGivenPointers, {}, kRouterNumbers};
static_assert(is_complete(kChoosingRecord) && is_complete(kGivenRecord));

constexpr std::array kRouterBackwardPointers = {
    MOEJIT_POINTER(RouterBackwardParams, logits, kRead),
    MOEJIT_POINTER(RouterBackwardParams, expert_scale, kRead),
    MOEJIT_POINTER(RouterBackwardParams, topk_ids, kRead),
    MOEJIT_POINTER(RouterBackwardParams, dprobs, kRead),
    MOEJIT_POINTER(RouterBackwardParams, dzero_probs, kRead),
    MOEJIT_POINTER(RouterBackwardParams, counts, kRead),
    MOEJIT_POINTER(RouterBackwardParams, aux_coefficient, kRead),
    MOEJIT_POINTER(RouterBackwardParams, z_coefficient, kRead),
    MOEJIT_POINTER(RouterBackwardParams, dlogits, kWrite),
    MOEJIT_POINTER(RouterBackwardParams, dexpert_scale, kWrite),
    MOEJIT_CALL_POINTERS(RouterBackwardParams),
};
constexpr std::array kRouterBackwardNumbers = {MOEJIT_NUMBER(RouterBackwardParams, call.tokens)};

constexpr ParamRecord kRouterBackwardRecord{"router_backward",
                                            sizeof(RouterBackwardParams),
                                            kRouterBackwardPointers,
                                            {},
                                            kRouterBackwardNumbers};
static_assert(is_complete(kRouterBackwardRecord));

bool has_aux_loss(const RouterFormula& formula) { return formula.aux != AuxCounts::kNone; }

// The next two follow the constants of the skeletons.

int32_t router_threads_per_sm(const RouterFormula& formula, int32_t experts) {
  const int32_t per_lane = router_experts_per_lane(formula, experts);
  if (per_lane <= 8) return 1024;
  return per_lane <= 16 || !has_aux_loss(formula) ? 512 : 256;
}

int32_t router_shared_bytes(const RouterSpec& spec) {
  const bool counts_unbiased = spec.formula.aux == AuxCounts::kUnbiased;
  const int32_t sums = (has_aux_loss(spec.formula) ? spec.experts : 0) + (spec.formula.z ? 1 : 0);
  return spec.warps * (8 * sums + 4 * spec.top_k) + 4 * spec.experts * (counts_unbiased ? 2 : 1);
}

constexpr std::string_view kRouterLogitTypes[] = {"float", "Bf16"};

// Returns the parts of the text that both kernels have.
KernelText router_kernel_text(const auto& spec, std::string_view skeleton, bool is_backward) {
  const bool is_bf16 = spec.formula.logits_dtype == DType::kBF16;
  const bool is_i64 = spec.topk_ids == DType::kI64;
  KernelText text{
      .types = fmt::format("{}_{}{}", to_string(spec.formula.score), is_bf16 ? "bf16" : "f32",
                           is_i64 ? "_i64" : ""),
      .tile = fmt::format("e{}k{}", spec.experts, spec.top_k),
      .summary = {},
      .includes = {},
      .params = {},
      .constants = {integer_constant("kExperts", spec.experts,
                                     spec.formula.zero_experts > 0 ? "A, with zero experts" : "E"),
                    integer_constant("kTopK", spec.top_k, "K"),
                    integer_constant("kWarps", spec.warps, "of a CTA")},
      .own_type = router_formula_text(spec.formula, spec.top_k, is_backward),
      .types_used = {{"Kernel",
                      std::string(skeleton),
                      {"Formula", "kExperts", "kTopK", "kWarps",
                       std::string(kRouterLogitTypes[is_bf16 ? 1 : 0]),
                       is_i64 ? "int64_t" : "int32_t"}}},
  };
  if (spec.formula.score == RouterScore::kExpression) text.includes.emplace_back("core/math.cuh");
  return text;
}

LaunchShape router_shape(const auto& spec, int32_t shared_bytes) {
  return {.threads = 32 * spec.warps,
          .ctas_per_sm = router_threads_per_sm(spec.formula, spec.experts) / (32 * spec.warps),
          .shared_bytes = shared_bytes};
}

}  // namespace

std::string to_string(const RouterSpec& spec) {
  return router_words("router", spec) + (spec.overlaps ? " overlaps" : "");
}
std::string to_string(const RouterBackwardSpec& spec) {
  return router_words("router_backward", spec);
}

int32_t router_experts_per_lane(const RouterFormula& formula, int32_t experts) {
  if (formula.groups == 1) return ceil_div(experts, 32);
  const int32_t in_group = experts / formula.groups;
  int32_t lanes = 1;  // of a group
  while (in_group % (2 * lanes) == 0 && 2 * lanes * formula.groups <= 32) lanes *= 2;
  return in_group / lanes;
}

bool reads_all_logits(const RouterFormula& formula) {
  if (has_aux_loss(formula) || formula.z) return true;
  const bool sums_to_one =
      formula.normalize == RouterNormalize::kSum && static_cast<float>(formula.epsilon) == 0.0f;
  return formula.score == RouterScore::kSoftmax && formula.when == RouterWhen::kBefore &&
         !sums_to_one;
}

int32_t usual_router_warps(const RouterFormula& formula, int32_t experts, int64_t max_tokens) {
  // A CTA of few warps leaves no SM idle in a call of few tokens.
  if (max_tokens <= 512) return 4;
  return std::min(16, router_threads_per_sm(formula, experts) / 64);
}

template <>
LaunchShape KernelKind<RouterSpec>::shape(const RouterSpec& spec) {
  LaunchShape shape = router_shape(spec, router_shared_bytes(spec));
  shape.overlaps = spec.overlaps;
  return shape;
}

template <>
int64_t KernelKind<RouterSpec>::busy(const RouterSpec& spec, const CallBounds&, int64_t tokens) {
  return ceil_div(tokens, int64_t{spec.warps});
}

template <>
std::vector<KernelNumber> KernelKind<RouterSpec>::numbers(const RouterSpec&, const CallBounds&) {
  return {{.role = "tokens", .dim = CallDim::kTokens}};
}

template <>
Work KernelKind<RouterSpec>::work(const RouterSpec& spec, const CallBounds&, const CallRows& rows) {
  const int64_t logits = int64_t{spec.experts} * size_bytes(spec.formula.logits_dtype);
  return {.min_bytes = rows.tokens * (logits + spec.top_k * (size_bytes(spec.topk_ids) + 4))};
}

template <>
const ParamRecord& KernelKind<RouterSpec>::record(const RouterSpec& spec) {
  return spec.formula.ids == RouterIds::kGiven ? kGivenRecord : kChoosingRecord;
}

template <>
KernelText KernelKind<RouterSpec>::text(const RouterSpec& spec) {
  KernelText text = router_kernel_text(spec, "Router", false);
  text.summary = "logits [T, E] to top-k ids and probabilities [T, K]";
  text.includes.emplace_back("map/router.cuh");
  text.params = "RouterParams";
  if (spec.overlaps) make_overlap(text);
  return text;
}

template <>
LaunchShape KernelKind<RouterBackwardSpec>::shape(const RouterBackwardSpec& spec) {
  return router_shape(spec, 4 * spec.warps * align_up(spec.experts, 4));
}

template <>
int64_t KernelKind<RouterBackwardSpec>::busy(const RouterBackwardSpec& spec, const CallBounds&,
                                             int64_t tokens) {
  return ceil_div(tokens, int64_t{spec.warps});
}

template <>
std::vector<KernelNumber> KernelKind<RouterBackwardSpec>::numbers(const RouterBackwardSpec&,
                                                                  const CallBounds&) {
  return {kCallTokens};
}

// Counts the chosen logits as input, or all of them, and dlogits as output.
template <>
Work KernelKind<RouterBackwardSpec>::work(const RouterBackwardSpec& spec, const CallBounds&,
                                          const CallRows& rows) {
  const int64_t size = size_bytes(spec.formula.logits_dtype);
  const int64_t read = reads_all_logits(spec.formula) ? spec.experts : spec.top_k;
  return {.min_bytes = rows.tokens * (size * (read + spec.experts) +
                                      spec.top_k * (size_bytes(spec.topk_ids) + 4))};
}

template <>
const ParamRecord& KernelKind<RouterBackwardSpec>::record(const RouterBackwardSpec&) {
  return kRouterBackwardRecord;
}

template <>
KernelText KernelKind<RouterBackwardSpec>::text(const RouterBackwardSpec& spec) {
  KernelText text = router_kernel_text(spec, "RouterBackward", true);
  text.summary = "gradients of top-k probabilities [T, K] to those of logits [T, E]";
  text.includes.emplace_back("map/router_backward.cuh");
  text.params = "RouterBackwardParams";
  return text;
}

}  // namespace moejit::compiler
