// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/exchange_operation.h"

#include "compiler/support/integer.h"
#include "moejit_device/params/exchange_params.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the numbers that all steps share. They follow from members that do not differ between
// steps, so that kernels planned apart agree.
ExchangeShape shape_of(const Exchange& exchange) {
  // One CTA sends a chunk, and a CTA that waits for the chunk waits for all of it. So few tokens
  // are cut into small chunks, and all SMs send. A flag takes a CTA some microseconds, so many
  // tokens are cut into chunks that last longer. Larger chunks would all arrive at the end.
  constexpr int64_t kWantedChunks = 256, kMostChunkTokens = 4;
  const int64_t chunk =
      std::clamp<int64_t>(exchange.max_tokens / kWantedChunks, 1, kMostChunkTokens);
  return {.ranks = static_cast<int32_t>(exchange.ranks),
          .rank_experts = static_cast<int32_t>(exchange.experts / exchange.ranks),
          .top_k = static_cast<int32_t>(exchange.top_k),
          .shared = static_cast<int32_t>(exchange.shared),
          .max_tokens = static_cast<int32_t>(exchange.max_tokens),
          .chunk_tokens = static_cast<int32_t>(chunk),
          .sms = static_cast<int32_t>(exchange.sms),
          .topk_ids = exchange.topk_ids};
}

constexpr const char* kSentOnce = "a row goes once to each rank that has experts of its token";

// Collects the reads and writes of a step.
class Step {
 public:
  explicit Step(const Exchange& exchange)
      : shape(shape_of(exchange)),
        t{"T", exchange.max_tokens},
        k{"K", exchange.top_k},
        r{"R", exchange.ranks},
        s{"S", exchange.ranks * exchange.max_tokens},
        e{"E", shape.rank_experts},
        starts{"E+1", e.value + 1},
        chunks{"chunks", chunks_of(shape)},
        columns{"H", exchange.columns},
        blocks{"ceil(H/128)", ceil_div(exchange.columns, int64_t{128})},
        p{"P", exchange.max_permuted_rows},
        one{"1", 1},
        exchange_(exchange) {}

  const ExchangeShape shape;
  const Dim t, k, r, s, e, starts, chunks, columns, blocks, p, one;

  void read(const std::string& role, DType dtype, std::vector<Dim> dims) {
    made_.operation.reads.push_back({.role = role, .tensor = role});
    add(role, dtype, std::move(dims));
  }
  Port& write(std::string role, const std::string& name, DType dtype, std::vector<Dim> dims,
              int64_t rank = -1) {
    add(name, dtype, std::move(dims), rank);
    return made_.operation.writes.emplace_back(Port{.role = std::move(role), .tensor = name});
  }
  // Adds a tensor in the memory of each rank: "slots_0" for the field slots[0], and so on.
  void write_to_ranks(std::string_view field, DType dtype, const std::vector<Dim>& dims) {
    for (int64_t rank = 0; rank < exchange_.ranks; ++rank)
      write(fmt::format("{}[{}]", field, rank), fmt::format("{}_{}", field, rank), dtype, dims,
            rank);
  }
  // Adds the words by which the CTAs of this rank share their work.
  void write_tickets() {
    constexpr int64_t kWords = device::kTicketWords;
    write("tickets", of_this_rank("tickets"), DType::kU32, {{fmt::format("{}", kWords), kWords}},
          exchange_.rank);
  }
  // Adds the tensor of that name in this rank's memory.
  void read_own(const std::string& field, DType dtype, std::vector<Dim> dims) {
    const std::string name = of_this_rank(field);
    made_.operation.reads.push_back({.role = field, .tensor = name});
    add(name, dtype, std::move(dims), exchange_.rank);
  }
  // Adds rows with scales unless they are bf16.
  void read_rows(const std::string& role, DType dtype, const Dim& rows) {
    made_.operation.reads.push_back(
        {.role = role, .tensor = role, .scale_inv = add_rows(role, dtype, rows)});
  }
  Port& write_rows(std::string role, const std::string& name, DType dtype, const Dim& rows) {
    std::string scales = add_rows(name, dtype, rows);
    return made_.operation.writes.emplace_back(
        Port{.role = std::move(role), .tensor = name, .scale_inv = std::move(scales)});
  }

  ExchangeOperation make(ExchangeStep step, ExchangeKernel kernel) && {
    const bool counts_epoch =
        step == ExchangeStep::kAwait || step == ExchangeStep::kDispatchPermute;
    auto& ports = counts_epoch ? made_.operation.writes : made_.operation.reads;
    ports.push_back({.role = "group.epoch", .tensor = "epoch"});
    add("epoch", DType::kU32, {one}, exchange_.rank);
    write("group.status", of_this_rank("group_status"), DType::kU32, {one}, exchange_.rank)
        .is_repeated = true;
    made_.operation.name = to_string(step);
    made_.operation.kind = std::move(kernel);
    return std::move(made_);
  }

 private:
  std::string of_this_rank(std::string_view field) const {
    return fmt::format("{}_{}", field, exchange_.rank);
  }
  void add(std::string name, DType dtype, std::vector<Dim> dims, int64_t rank = -1) {
    made_.values.push_back({.name = std::move(name),
                            .dtype = dtype,
                            .shape = std::move(dims),
                            .rank = static_cast<int32_t>(rank)});
  }
  // Returns the name of the scales, or nothing.
  std::string add_rows(const std::string& name, DType dtype, const Dim& rows) {
    add(name, dtype, {rows, columns});
    if (dtype == DType::kBF16) return {};
    add(name + "_scale_inv", DType::kF32, {rows, blocks});
    made_.values.back().layout = Layout::kScalesCompact;
    return name + "_scale_inv";
  }

  const Exchange& exchange_;
  ExchangeOperation made_;
};

ExchangeOperation choices(const Exchange& exchange) {
  // All CTAs wait for peers, so they are few, and leave SMs to kernels on other streams.
  constexpr int64_t kMostPieces = 64, kChoicesOfPart = 512;
  const int64_t count = exchange.max_tokens * exchange.top_k;
  const int64_t parts = std::clamp<int64_t>(ceil_div(count, kChoicesOfPart), 1,
                                            std::max<int64_t>(kMostPieces / exchange.ranks, 1));
  Step step(exchange);
  step.read("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.read("topk_probs", exchange.topk_probs, {step.t, step.k});
  step.write_to_ranks("choice_ids", DType::kI32, {step.s, step.k});
  step.write_to_ranks("choice_probs", DType::kF32, {step.s, step.k});
  step.write_to_ranks("choice_flags", DType::kU32, {step.r, {"parts", parts}});
  step.write("slot_ids", "slot_ids", DType::kI32, {step.s, step.k});
  step.write("slot_probs", "slot_probs", DType::kF32, {step.s, step.k});
  step.write("saved_tokens", "saved_tokens", DType::kI64, {step.one}).is_optional = true;
  const ExchangeChoicesSpec spec{
      .exchange = step.shape, .probs = exchange.topk_probs, .parts = static_cast<int32_t>(parts)};
  return std::move(step).make(
      ExchangeStep::kChoices,
      {spec,
       {fmt::format(
           "{} CTAs, each with a part of the choices for one rank: it waits for the same part of "
           "that rank",
           exchange.ranks * parts)}});
}

// Adds what a rank sends, and the slots that it sends to.
void add_sent_rows(Step& step, const Exchange& exchange) {
  step.read_rows("input", exchange.input, step.t);
  step.read("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.write_to_ranks("slots", exchange.format, {step.s, step.columns});
  if (exchange.format != DType::kBF16)
    step.write_to_ranks("slot_scales", DType::kF32, {step.s, step.blocks});
  step.write_to_ranks("row_flags", DType::kU32, {step.r, step.chunks});
  step.write_tickets();
}

float epsilon_of(const Exchange& exchange) {
  const bool quantizes = exchange.input == DType::kBF16 && exchange.format != DType::kBF16;
  return quantizes ? exchange.epsilon : 0.0f;
}

constexpr int64_t kSenderSms = 64;  // where all SMs are taken

// Return how many SMs send first. In a dispatch senders also permute own rows, so with few SMs all
// of them send. In combine half of them do.
int32_t dispatch_senders(const Exchange& exchange) {
  return static_cast<int32_t>(exchange.sms > 0 ? std::min(exchange.sms, kSenderSms) : kSenderSms);
}
int32_t combine_senders(const Exchange& exchange) {
  return static_cast<int32_t>(
      exchange.sms > 0 ? std::min(ceil_div(exchange.sms, int64_t{2}), kSenderSms) : kSenderSms);
}

std::string sms_reason(const Exchange& exchange, int32_t senders, std::string_view others) {
  if (exchange.sms == 0)
    return fmt::format("{} SMs send, the others {} meanwhile", senders, others);
  return fmt::format("{} SMs are taken, the first ones on which CTAs start; {} send first, {} {}",
                     exchange.sms, senders, senders == exchange.sms ? "then" : "the others",
                     others);
}

std::string chunk_reason(const Step& step) {
  if (step.shape.chunk_tokens == 1) return "each token has a flag";
  return fmt::format("{} neighboring tokens share a flag", step.shape.chunk_tokens);
}

int32_t rows_in_shared_of(const Step& step, const Exchange& exchange) {
  return rows_in_shared(step.shape, exchange.format, static_cast<int32_t>(exchange.columns));
}

std::string send_reason(int32_t rows) {
  if (rows == 0) return "rows are too long for shared memory, so that threads store them";
  return "whole rows are copied from shared memory, in large packets";
}

ExchangeOperation dispatch(const Exchange& exchange) {
  Step step(exchange);
  add_sent_rows(step, exchange);
  const DispatchRowsSpec spec{.exchange = step.shape,
                              .columns = static_cast<int32_t>(exchange.columns),
                              .input = exchange.input,
                              .output = exchange.format,
                              .epsilon = epsilon_of(exchange),
                              .sender_sms = exchange.sms > 0 ? step.shape.sms : 256,
                              .rows_in_shared = rows_in_shared_of(step, exchange)};
  std::vector<std::string> reasons = {
      kSentOnce, chunk_reason(step), send_reason(spec.rows_in_shared),
      fmt::format("{} send: a kernel behind it waits for what comes",
                  exchange.sms > 0
                      ? fmt::format("{} SMs, the first ones on which CTAs start,", exchange.sms)
                      : "all SMs")};
  return std::move(step).make(ExchangeStep::kDispatch, {spec, std::move(reasons)});
}

ExchangeOperation dispatch_permute(const Exchange& exchange) {
  Step step(exchange);
  add_sent_rows(step, exchange);
  step.read("row_map", DType::kI32, {step.s, step.k});
  if (exchange.moves_probs) step.read("slot_probs", DType::kF32, {step.s, step.k});
  step.read("counts", DType::kI32, {step.e});
  step.read("offs", DType::kI32, {step.starts});
  step.write_rows("output", "permuted", exchange.format, step.p);
  if (exchange.moves_probs) step.write("output_probs", "permuted_probs", DType::kF32, {step.p});
  if (exchange.tells_tokens)
    step.write("row_tokens", "row_tokens", DType::kI32, {step.p}).is_optional = true;
  if (exchange.keeps_rows)
    step.write_rows("kept_output", "kept_rows", exchange.format, step.s).is_optional = true;
  const DispatchPermuteSpec spec{.exchange = step.shape,
                                 .columns = static_cast<int32_t>(exchange.columns),
                                 .input = exchange.input,
                                 .output = exchange.format,
                                 .epsilon = epsilon_of(exchange),
                                 .moves_probs = exchange.moves_probs,
                                 .sender_sms = dispatch_senders(exchange),
                                 .rows_in_shared = rows_in_shared_of(step, exchange)};
  std::vector<std::string> reasons = {
      kSentOnce, chunk_reason(step), send_reason(spec.rows_in_shared),
      sms_reason(exchange, spec.sender_sms, "permute rows that have come")};
  if (exchange.keeps_rows)
    reasons.emplace_back("rows of slots are written too: the next call overwrites the slots");
  return std::move(step).make(ExchangeStep::kDispatchPermute, {spec, std::move(reasons)});
}

ExchangeOperation await(const Exchange& exchange) {
  Step step(exchange);
  step.read_own("row_flags", DType::kU32, {step.r, step.chunks});
  const AwaitRowsSpec spec{.exchange = step.shape};
  return std::move(step).make(ExchangeStep::kAwait, {spec, {"one CTA looks at all flags"}});
}

ExchangeOperation combine_rows(const Exchange& exchange) {
  Step step(exchange);
  const Dim flags{"chunks+1", step.chunks.value + 1}, most{"T_max", exchange.max_tokens};
  step.read("expert_rows", DType::kBF16, {step.p, step.columns});
  step.read("row_map", DType::kI32, {step.s, step.k});
  step.read("slot_ids", DType::kI32, {step.s, step.k});
  if (exchange.has_dprobs) step.read("slot_dprobs", DType::kF32, {step.s, step.k});
  step.read("topk_ids", exchange.topk_ids, {step.t, step.k});
  step.write_to_ranks("results", DType::kBF16,
                      exchange.sends_rows ? std::vector{most, step.k, step.columns}
                                          : std::vector{step.s, step.columns});
  if (exchange.has_dprobs) step.write_to_ranks("dprobs_home", DType::kF32, {most, step.k});
  step.write_to_ranks("result_flags", DType::kU32, {step.r, flags});
  step.write("output", "output", DType::kBF16, {step.t, step.columns});
  if (exchange.has_dprobs) step.write("dprobs", "dprobs", exchange.topk_probs, {step.t, step.k});
  step.write_tickets();
  // Beside the threads that add, a warp brings rows to shared memory, and one raises flags.
  constexpr int32_t kAdders = 256, kOtherThreads = 64;
  const int32_t rows_in_shared =
      exchange.sends_rows ? 0 : added_rows_in_shared(static_cast<int32_t>(exchange.columns));
  const CombineRowsSpec spec{.exchange = step.shape,
                             .sends_rows = exchange.sends_rows,
                             .columns = static_cast<int32_t>(exchange.columns),
                             .has_dprobs = exchange.has_dprobs,
                             .probs = exchange.topk_probs,
                             .sender_sms = combine_senders(exchange),
                             .rows_in_shared = rows_in_shared,
                             .threads = kAdders + (rows_in_shared > 0 ? kOtherThreads : 0)};
  std::vector<std::string> reasons = {
      "a rank sends one row of a token, the sum of what its experts made",
      "ranks are added in ascending order, so that no timing changes a bit"};
  if (exchange.sends_rows)
    reasons = {
        "every row goes home as it is, and is added in the order of one rank with all "
        "experts: the bits of that rank, for as many rows on the wire as a token has experts "
        "elsewhere"};
  if (!exchange.sends_rows)
    reasons.emplace_back(
        spec.rows_in_shared > 0
            ? fmt::format("whole rows are copied to shared memory and added there, {} at a time",
                          spec.rows_in_shared)
            : "rows do not fit in shared memory, so that threads load them");
  reasons.push_back(sms_reason(exchange, spec.sender_sms, "add rows that have come"));
  return std::move(step).make(ExchangeStep::kCombineRows, {spec, std::move(reasons)});
}

ExchangeOperation route_dispatch_permute(const Exchange& exchange) {
  const ExchangeOperation first = choices(exchange), last = dispatch_permute(exchange);
  const std::string status = fmt::format("group_status_{}", exchange.rank);
  Operation route{
      .name = "route",
      .kind = Route{.local_experts = shape_of(exchange).rank_experts,
                    .top_k = static_cast<int32_t>(exchange.top_k),
                    .splits_alignment = static_cast<int32_t>(exchange.splits_alignment)},
      .reads = {{.role = "topk_ids", .tensor = "slot_ids"}},
      .writes = {{.role = "counts", .tensor = "counts"},
                 {.role = "offs", .tensor = "offs"},
                 {.role = "row_map", .tensor = "row_map"},
                 {.role = "status", .tensor = status, .is_repeated = true}}};
  ExchangeOperation joined = join_route_dispatch(first.operation, route, last.operation,
                                                 static_cast<int32_t>(exchange.rank));
  for (const auto* const values : {&first.values, &last.values})
    for (const Value& value : *values)
      if (std::ranges::find(joined.values, value.name, &Value::name) == joined.values.end())
        joined.values.push_back(value);
  return joined;
}

}  // namespace

ExchangeOperation exchange_operation(ExchangeStep step, const Exchange& exchange) {
  switch (step) {
    case ExchangeStep::kChoices: return choices(exchange);
    case ExchangeStep::kDispatch: return dispatch(exchange);
    case ExchangeStep::kDispatchPermute: return dispatch_permute(exchange);
    case ExchangeStep::kRouteDispatchPermute: return route_dispatch_permute(exchange);
    case ExchangeStep::kAwait: return await(exchange);
    case ExchangeStep::kCombineRows: break;
  }
  return combine_rows(exchange);
}

void set_rank(KernelPlan& kernel, int64_t rank, int64_t timeout_ms) {
  constexpr int64_t kNanoseconds = 1'000'000;  // of a millisecond
  for (KernelNumber& number : kernel.numbers) {
    if (number.role.ends_with("group.rank") || number.role == "rank") number.value = rank;
    if (number.role.ends_with("group.timeout_ns")) number.value = timeout_ms * kNanoseconds;
  }
}

std::string_view to_string(ExchangeStep step) {
  switch (step) {
    case ExchangeStep::kChoices: return "exchange_choices";
    case ExchangeStep::kDispatch: return "dispatch_rows";
    case ExchangeStep::kDispatchPermute: return "dispatch_permute";
    case ExchangeStep::kRouteDispatchPermute: return "route_dispatch_permute";
    case ExchangeStep::kAwait: return "await_rows";
    case ExchangeStep::kCombineRows: return "combine_rows";
  }
  return "unknown";
}

}  // namespace moejit::compiler
