// SPDX-License-Identifier: Apache-2.0
#include "compiler/exchange.h"

#include "compiler/kernels/exchange.h"
#include "compiler/planner/complete_kernel.h"
#include "compiler/planner/plan_workspace.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/exchange_params.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the numbers that all steps share. They follow from members that do not differ between
// steps, so that kernels planned apart agree.
ExchangeShape shape_of(const Exchange& exchange) {
  // A chunk is sent by one CTA, and what waits for it waits for all of it: few tokens are cut into
  // small chunks so that all SMs send, many into chunks that make a flag cheap.
  constexpr int64_t kWantedChunks = 1024, kMostTokens = 16;
  const int64_t chunk = std::clamp<int64_t>(exchange.max_tokens / kWantedChunks, 1, kMostTokens);
  return {.ranks = static_cast<int32_t>(exchange.ranks),
          .rank_experts = static_cast<int32_t>(exchange.experts / exchange.ranks),
          .top_k = static_cast<int32_t>(exchange.top_k),
          .max_tokens = static_cast<int32_t>(exchange.max_tokens),
          .chunk_tokens = static_cast<int32_t>(chunk),
          .topk_ids = exchange.topk_ids};
}

ExchangeChoicesSpec choices_spec(const ExchangeShape& exchange, DType probs) {
  // All CTAs wait for peers, so they are few, and leave SMs to kernels on other streams.
  constexpr int64_t kMostParts = 32, kChoicesOfPart = 512;
  const int64_t choices = int64_t{exchange.max_tokens} * exchange.top_k;
  const int64_t parts = std::clamp<int64_t>(ceil_div(choices, kChoicesOfPart), 1, kMostParts);
  return {.exchange = exchange, .probs = probs, .parts = static_cast<int32_t>(parts)};
}

DispatchRowsSpec dispatch_spec(const ExchangeShape& shape, const Exchange& exchange) {
  const bool quantizes = exchange.input == DType::kBF16 && exchange.format != DType::kBF16;
  return {.exchange = shape,
          .columns = static_cast<int32_t>(exchange.columns),
          .input = exchange.input,
          .output = exchange.format,
          .epsilon = quantizes ? exchange.epsilon : 0.0f};
}

// Collects the tensors of a step and the arguments of its kernel.
class Step {
 public:
  explicit Step(const Exchange& exchange)
      : shape(shape_of(exchange)),
        t{"T", exchange.max_tokens},
        k{"K", exchange.top_k},
        r{"R", exchange.ranks},
        s{"S", exchange.ranks * exchange.max_tokens},
        chunks{"chunks", chunks_of(shape)},
        chunks_and_status{"chunks+1", chunks_of(shape) + 1},
        columns{"H", exchange.columns},
        blocks{"ceil(H/128)", ceil_div(exchange.columns, int64_t{128})},
        p{"P", exchange.max_permuted_rows},
        one{"1", 1},
        exchange_(exchange) {}

  const ExchangeShape shape;
  const Dim t, k, r, s, chunks, chunks_and_status, columns, blocks, p, one;

  void add(std::string role, DType dtype, std::vector<Dim> dims) {
    std::string name = role;
    add_as(std::move(role), std::move(name), dtype, std::move(dims));
  }
  // A tensor whose name is not that of its field.
  void add_named(std::string role, std::string name, DType dtype, std::vector<Dim> dims) {
    add_as(std::move(role), std::move(name), dtype, std::move(dims));
  }
  // A tensor in the memory of each rank: "slots_0" for the field slots[0], and so on.
  void add_of_ranks(std::string_view field, DType dtype, const std::vector<Dim>& dims) {
    for (int64_t rank = 0; rank < exchange_.ranks; ++rank)
      add_as(fmt::format("{}[{}]", field, rank), fmt::format("{}_{}", field, rank), dtype, dims);
  }
  // The tensor of that name in this rank's memory.
  void add_own(std::string_view field, DType dtype, std::vector<Dim> dims) {
    add_as(std::string(field), fmt::format("{}_{}", field, exchange_.rank), dtype, std::move(dims));
  }

  Plan make(const Target& target, KernelSpec spec, std::vector<std::string> reasons) && {
    add_as("group.epoch", "epoch", DType::kU32, {one});
    add_as("group.status", fmt::format("group_status_{}", exchange_.rank), DType::kU32, {one});
    KernelPlan kernel{
        .spec = std::move(spec), .arguments = std::move(arguments_), .reasons = std::move(reasons)};
    complete_kernel(kernel, {.max_tokens = exchange_.max_tokens,
                             .top_k = static_cast<int32_t>(exchange_.top_k),
                             .groups = shape.rank_experts,
                             .max_permuted_rows = exchange_.max_permuted_rows > 0
                                                      ? exchange_.max_permuted_rows
                                                      : exchange_.max_tokens * exchange_.top_k,
                             .experts = exchange_.experts});
    constexpr int64_t kNanoseconds = 1'000'000;  // of a millisecond
    for (KernelNumber& number : kernel.numbers) {
      if (number.role == "group.rank") number.value = exchange_.rank;
      if (number.role == "group.timeout_ns") number.value = exchange_.timeout_ms * kNanoseconds;
    }
    Plan plan{.target = target, .bounds = kernel.bounds, .tensors = std::move(tensors_)};
    for (TensorPlan& tensor : plan.tensors) {
      tensor.role = writes(kernel, tensor.name) ? TensorRole::kOutput : TensorRole::kInput;
      tensor.bytes = size_bytes(tensor.dtype);
      for (const Dim& dim : tensor.shape) tensor.bytes *= dim.value;
    }
    plan.kernels.push_back(std::move(kernel));
    plan.workspace_bytes = plan_workspace(plan, {});
    return plan;
  }

 private:
  void add_as(std::string role, std::string name, DType dtype, std::vector<Dim> dims) {
    tensors_.push_back({.name = name, .dtype = dtype, .shape = std::move(dims)});
    arguments_.push_back({std::move(role), std::move(name)});
  }

  const Exchange& exchange_;
  std::vector<TensorPlan> tensors_;
  std::vector<KernelArgument> arguments_;
};

Plan choices(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  const ExchangeChoicesSpec spec = choices_spec(step.shape, exchange.topk_probs);
  step.add("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.add("topk_probs", exchange.topk_probs, {step.t, step.k});
  step.add_of_ranks("choice_ids", DType::kI32, {step.s, step.k});
  step.add_of_ranks("choice_probs", DType::kF32, {step.s, step.k});
  step.add_of_ranks("choice_flags", DType::kU32, {step.r, {"parts", spec.parts}});
  step.add("slot_ids", DType::kI32, {step.s, step.k});
  step.add("slot_probs", DType::kF32, {step.s, step.k});
  return std::move(step).make(
      target, spec,
      {fmt::format(
          "{} CTAs, each with a part of the choices: it waits for the same part of every rank",
          spec.parts)});
}

// Adds what a rank sends from, and the slots that it sends to.
void add_sent_rows(Step& step, const Exchange& exchange) {
  step.add("input", exchange.input, {step.t, step.columns});
  if (exchange.input != DType::kBF16)
    step.add("input_scale_inv", DType::kF32, {step.t, step.blocks});
  step.add("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.add_of_ranks("slots", exchange.format, {step.s, step.columns});
  if (exchange.format != DType::kBF16)
    step.add_of_ranks("slot_scales", DType::kF32, {step.s, step.blocks});
  step.add_of_ranks("row_flags", DType::kU32, {step.r, step.chunks});
}

constexpr const char* kSentOnce = "a row goes once to each rank that has experts of its token";

std::string chunk_reason(const Step& step) {
  return fmt::format("{} neighboring tokens share a flag", step.shape.chunk_tokens);
}

Plan dispatch(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  add_sent_rows(step, exchange);
  return std::move(step).make(target, dispatch_spec(step.shape, exchange),
                              {kSentOnce, chunk_reason(step)});
}

Plan dispatch_permute(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  const Dim e{"E", step.shape.rank_experts}, starts{"E+1", step.shape.rank_experts + 1};
  add_sent_rows(step, exchange);
  step.add("row_map", DType::kI32, {step.s, step.k});
  if (exchange.moves_probs) step.add("slot_probs", DType::kF32, {step.s, step.k});
  step.add("counts", DType::kI32, {e});
  step.add("offs", DType::kI32, {starts});
  step.add_named("output", "permuted", exchange.format, {step.p, step.columns});
  if (exchange.format != DType::kBF16)
    step.add_named("output_scale_inv", "permuted_scale_inv", DType::kF32, {step.p, step.blocks});
  if (exchange.moves_probs) step.add_named("output_probs", "permuted_probs", DType::kF32, {step.p});
  if (exchange.tells_tokens) step.add("row_tokens", DType::kI32, {step.p});
  const DispatchRowsSpec rows = dispatch_spec(step.shape, exchange);
  return std::move(step).make(
      target,
      DispatchPermuteSpec{.exchange = step.shape,
                          .columns = rows.columns,
                          .input = rows.input,
                          .output = rows.output,
                          .epsilon = rows.epsilon,
                          .moves_probs = exchange.moves_probs,
                          .tells_tokens = exchange.tells_tokens},
      {kSentOnce, chunk_reason(step), "rows are permuted while others are on the wire"});
}

Plan await(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  step.add_own("row_flags", DType::kU32, {step.r, step.chunks});
  return std::move(step).make(target, AwaitRowsSpec{.exchange = step.shape},
                              {"one CTA looks at all flags"});
}

Plan combine_push(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  step.add("slot_results", DType::kBF16, {step.s, step.columns});
  if (exchange.has_dprobs) step.add("slot_dprobs", DType::kF32, {step.s, step.k});
  step.add("slot_ids", DType::kI32, {step.s, step.k});
  step.add_of_ranks("results", DType::kBF16, {step.s, step.columns});
  if (exchange.has_dprobs)
    step.add_of_ranks("dprobs_home", DType::kF32, {{"T_max", exchange.max_tokens}, step.k});
  step.add_of_ranks("result_flags", DType::kU32, {step.r, step.chunks_and_status});
  return std::move(step).make(
      target,
      CombinePushSpec{.exchange = step.shape,
                      .columns = static_cast<int32_t>(exchange.columns),
                      .has_dprobs = exchange.has_dprobs},
      {"a rank sends one row of a token, the sum of what its experts made"});
}

Plan combine_sum(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  step.add("slot_results", DType::kBF16, {step.s, step.columns});
  if (exchange.has_dprobs) step.add("slot_dprobs", DType::kF32, {step.s, step.k});
  step.add("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.add_own("results", DType::kBF16, {step.s, step.columns});
  if (exchange.has_dprobs)
    step.add_own("dprobs_home", DType::kF32, {{"T_max", exchange.max_tokens}, step.k});
  step.add_own("result_flags", DType::kU32, {step.r, step.chunks_and_status});
  step.add("output", DType::kBF16, {step.t, step.columns});
  if (exchange.has_dprobs) step.add("dprobs", exchange.topk_probs, {step.t, step.k});
  return std::move(step).make(
      target,
      CombineSumSpec{.exchange = step.shape,
                     .columns = static_cast<int32_t>(exchange.columns),
                     .has_dprobs = exchange.has_dprobs,
                     .probs = exchange.topk_probs},
      {"ranks are added in ascending order, so that no timing changes a bit"});
}

Plan combine_rows(const Exchange& exchange, const Target& target) {
  Step step(exchange);
  step.add("expert_rows", DType::kBF16, {step.p, step.columns});
  step.add("row_map", DType::kI32, {step.s, step.k});
  step.add("slot_ids", DType::kI32, {step.s, step.k});
  if (exchange.has_dprobs) step.add("slot_dprobs", DType::kF32, {step.s, step.k});
  step.add("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.add_of_ranks("results", DType::kBF16, {step.s, step.columns});
  if (exchange.has_dprobs)
    step.add_of_ranks("dprobs_home", DType::kF32, {{"T_max", exchange.max_tokens}, step.k});
  step.add_of_ranks("result_flags", DType::kU32, {step.r, step.chunks_and_status});
  step.add("output", DType::kBF16, {step.t, step.columns});
  if (exchange.has_dprobs) step.add("dprobs", exchange.topk_probs, {step.t, step.k});
  return std::move(step).make(
      target,
      CombineRowsSpec{.exchange = step.shape,
                      .columns = static_cast<int32_t>(exchange.columns),
                      .has_dprobs = exchange.has_dprobs,
                      .probs = exchange.topk_probs},
      {"a rank sends one row of a token, the sum of what its experts made",
       "ranks are added in ascending order, so that no timing changes a bit",
       "own rows are added while others are on the wire"});
}

// Returns whether a step has permuted rows.
bool has_permuted_rows(ExchangeStep step) {
  return step == ExchangeStep::kDispatchPermute || step == ExchangeStep::kCombineRows;
}

// Returns what is wrong with an exchange, or nothing.
std::string fault_of(const Exchange& exchange) {
  const auto outside = [](std::string_view what, int64_t got, int64_t least, int64_t most) {
    return got < least || got > most
               ? fmt::format("{} is {}, wanted {} to {}", what, got, least, most)
               : std::string();
  };
  for (const std::string& fault : {outside("ranks", exchange.ranks, 1, device::kMostRanks),
                                   outside("rank", exchange.rank, 0, exchange.ranks - 1),
                                   outside("top_k", exchange.top_k, 1, 32),
                                   outside("max_tokens", exchange.max_tokens, 1, 16384),
                                   outside("columns", exchange.columns, 16, 65536)})
    if (!fault.empty()) return fault;
  if (exchange.experts < exchange.ranks || exchange.experts % exchange.ranks != 0)
    return fmt::format("experts is {}, wanted a multiple of the {} ranks", exchange.experts,
                       exchange.ranks);
  if (exchange.columns % 16 != 0)
    return fmt::format("columns is {}, wanted a multiple of 16", exchange.columns);
  if (exchange.format == DType::kBF16 && exchange.input != DType::kBF16)
    return "rows that are quantized already travel as they are, wanted format F8_E4M3";
  return {};
}

}  // namespace

Result<Plan> plan_exchange(ExchangeStep step, const Exchange& exchange, const Target& target) {
  std::string fault = fault_of(exchange);
  if (fault.empty() && has_permuted_rows(step) && exchange.max_permuted_rows < 1)
    fault = fmt::format("max_permuted_rows is {}, wanted 1 or more for {}",
                        exchange.max_permuted_rows, to_string(step));
  if (fault.empty() && has_permuted_rows(step) && exchange.ranks < 2)
    fault = fmt::format("ranks is {}, wanted 2 or more for {}", exchange.ranks, to_string(step));
  if (!fault.empty())
    return fail(Stage::kPlan, ErrorCode::kUnsupported, "an exchange between ranks: " + fault);
  Plan plan = [&] {
    switch (step) {
      case ExchangeStep::kChoices: return choices(exchange, target);
      case ExchangeStep::kDispatch: return dispatch(exchange, target);
      case ExchangeStep::kAwait: return await(exchange, target);
      case ExchangeStep::kCombinePush: return combine_push(exchange, target);
      case ExchangeStep::kDispatchPermute: return dispatch_permute(exchange, target);
      case ExchangeStep::kCombineSum: return combine_sum(exchange, target);
      case ExchangeStep::kCombineRows: break;
    }
    return combine_rows(exchange, target);
  }();
  plan.kernels.front().operation = to_string(step);
  plan.subject = fmt::format("the step {} of an exchange", to_string(step));
  return plan;
}

std::string_view to_string(ExchangeStep step) {
  switch (step) {
    case ExchangeStep::kChoices: return "exchange_choices";
    case ExchangeStep::kDispatch: return "dispatch_rows";
    case ExchangeStep::kAwait: return "await_rows";
    case ExchangeStep::kCombinePush: return "combine_push";
    case ExchangeStep::kCombineSum: return "combine_sum";
    case ExchangeStep::kDispatchPermute: return "dispatch_permute";
    case ExchangeStep::kCombineRows: return "combine_rows";
  }
  return "unknown";
}

}  // namespace moejit::compiler
