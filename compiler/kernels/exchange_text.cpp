// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/exchange_parts.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string shape_text(const ExchangeShape& s) {
  return fmt::format("ranks={} rank_experts={} top_k={}{} max_tokens={} chunk_tokens={}{}{}",
                     s.ranks, s.rank_experts, s.top_k,
                     s.shared > 0 ? fmt::format(" shared={}", s.shared) : "", s.max_tokens,
                     s.chunk_tokens, s.sms > 0 ? fmt::format(" sms={}", s.sms) : "",
                     s.topk_ids == DType::kI64 ? " topk_ids=i64" : "");
}

std::string id_type(const ExchangeShape& exchange) {
  return exchange.topk_ids == DType::kI64 ? "int64_t" : "int32_t";
}

std::string prob_type(DType probs) { return probs == DType::kBF16 ? "Bf16" : "float"; }

std::string tile_of(const ExchangeShape& exchange) {
  return fmt::format("r{}e{}k{}", exchange.ranks, exchange.rank_experts, exchange.top_k);
}

namespace {

std::vector<NamedConstant> constants_of(const ExchangeShape& exchange) {
  return {integer_constant("kRanks", exchange.ranks, "GPUs that exchange rows"),
          integer_constant("kRankExperts", exchange.rank_experts, "experts of a rank"),
          integer_constant("kTopK", exchange.top_k, "experts that a token is routed to"),
          integer_constant("kMaxTokens", exchange.max_tokens, "of a rank")};
}

}  // namespace

KernelText chunked_text(const ExchangeShape& exchange) {
  KernelText text{.tile = tile_of(exchange),
                  .constants = constants_of(exchange),
                  .types_used = {{"Exchange",
                                  "TokenExchange",
                                  {"kRanks", "kRankExperts", "kTopK", "kMaxTokens", "kChunkTokens",
                                   id_type(exchange)}}}};
  text.constants.push_back(integer_constant("kChunkTokens", exchange.chunk_tokens,
                                            "neighboring tokens that share a flag"));
  if (exchange.shared > 0) {
    text.constants.push_back(integer_constant("kSharedChoices", exchange.shared,
                                              "of these, experts that every token has"));
    text.types_used.back().arguments.emplace_back("kSharedChoices");
  }
  return text;
}

void add_columns(KernelText& text, int32_t columns) {
  text.constants.push_back(integer_constant("kColumns", columns, "of a row"));
}

void add_threads(KernelText& text, int32_t threads, int32_t segments) {
  text.constants.push_back(integer_constant("kThreads", threads, "per CTA"));
  if (segments > 0)
    text.constants.push_back(
        integer_constant("kSegmentsInFlight", segments, "segments loaded before one is used"));
}

void add_sms(KernelText& text, const ExchangeShape& exchange, int32_t sender_sms) {
  if (exchange.sms > 0)
    text.constants.push_back(integer_constant("kSms", exchange.sms,
                                              "SMs that the kernel takes, the others end at once"));
  text.constants.push_back(
      integer_constant("kSenderSms", sender_sms, "SMs that send before they receive"));
  if (exchange.sms > 0) {
    text.types_used.push_back({"Sms", "FirstSms", {"kSms", "kSenderSms"}});
  } else {
    text.types_used.push_back({"Sms", "AllSms", {"kSenderSms"}});
  }
}

std::string SentRows::types() const {
  return fmt::format("{}_{}", input == DType::kBF16 ? "bf16" : "e4m3",
                     output == DType::kBF16 ? "bf16" : "e4m3");
}
std::string SentRows::summary() const {
  if (quantizes()) return "bf16 rows, quantized to e4m3,";
  return input == DType::kBF16 ? "bf16 rows" : "e4m3 rows with their scales";
}
namespace {

std::string load_of(const SentRows& rows) {
  if (rows.quantizes()) return "LoadRows<kColumns>";
  return rows.input == DType::kBF16 ? "LoadUnchangedRows<kColumns>" : "LoadQuantizedRows<kColumns>";
}

}  // namespace

void add_send(KernelText& text, const SentRows& rows, int32_t rows_in_shared) {
  if (rows.quantizes())
    text.constants.push_back(
        float_bits_constant("kEpsilonBits", rows.epsilon, "the smallest amax of a scale"));
  std::vector<std::string> arguments = {
      load_of(rows), rows.quantizes() ? "Quantize1x128<kEpsilonBits>" : "QuantizeKeep", "Exchange",
      "kThreads"};
  if (rows_in_shared > 0) {
    text.constants.push_back(
        integer_constant("kRowsInShared", rows_in_shared, "rows that a CTA has in shared memory"));
    text.constants.push_back(
        integer_constant("kFirstByte", kFirstSharedRow, "of these rows in shared memory"));
    arguments.insert(arguments.end(), {"kRowsInShared", "kFirstByte"});
  }
  arguments.emplace_back("kSegmentsInFlight");
  text.types_used.push_back(
      {"Send", rows_in_shared > 0 ? "SendThroughShared" : "SendByThreads", std::move(arguments)});
}

std::string to_string(const ExchangeChoicesSpec& s) {
  return fmt::format("exchange_choices {} parts={} threads={}{}", shape_text(s.exchange), s.parts,
                     s.threads, s.probs == DType::kBF16 ? " bf16_probs" : "");
}

std::string to_string(const DispatchRowsSpec& s) {
  return fmt::format(
      "dispatch_rows {} columns={} input={} output={} epsilon={:g} sender_sms={} rows_in_shared={} "
      "threads={} segments_in_flight={}",
      shape_text(s.exchange), s.columns, to_string(s.input), to_string(s.output), s.epsilon,
      s.sender_sms, s.rows_in_shared, s.threads, s.segments_in_flight);
}

std::string to_string(const AwaitRowsSpec& s) {
  return fmt::format("await_rows {} threads={}", shape_text(s.exchange), s.threads);
}

template <>
KernelText KernelKind<ExchangeChoicesSpec>::text(const ExchangeChoicesSpec& spec) {
  KernelText text{
      .types = spec.exchange.topk_ids == DType::kI64 ? "i64" : "i32",
      .tile = tile_of(spec.exchange),
      .summary =
          "top-k ids and probabilities [T, K] to all ranks, and those of all ranks to the "
          "choices of this rank's experts [S, K]",
      .includes = {"exchange/choices.cuh"},
      .params = "ExchangeChoicesParams",
      .constants = constants_of(spec.exchange),
      .types_used = {{"Kernel",
                      "ExchangeChoices",
                      {"kRanks", "kRankExperts", "kTopK", "kMaxTokens", "kParts", "kThreads",
                       id_type(spec.exchange), prob_type(spec.probs)}}},
  };
  text.constants.push_back(
      integer_constant("kParts", spec.parts, "of a rank's choices, each with a flag"));
  add_threads(text, spec.threads, 0);
  return text;
}

template <>
KernelText KernelKind<DispatchRowsSpec>::text(const DispatchRowsSpec& spec) {
  const SentRows rows{spec.input, spec.output, spec.epsilon};
  KernelText text = chunked_text(spec.exchange);
  text.types = rows.types();
  text.summary =
      fmt::format("{} to the slots of their tokens at the ranks of their experts", rows.summary());
  text.includes = {"exchange/dispatch_rows.cuh"};
  text.params = "DispatchRowsParams";
  add_columns(text, spec.columns);
  add_sms(text, spec.exchange, spec.sender_sms);
  add_threads(text, spec.threads, spec.segments_in_flight);
  add_send(text, rows, spec.rows_in_shared);
  text.types_used.push_back({"Kernel", "DispatchRows", {"Send", "Exchange", "Sms", "kThreads"}});
  return text;
}

template <>
KernelText KernelKind<AwaitRowsSpec>::text(const AwaitRowsSpec& spec) {
  KernelText text = chunked_text(spec.exchange);
  text.types = "rows";
  text.summary = "waits until the rows of all ranks have arrived";
  text.includes = {"exchange/await_rows.cuh"};
  text.params = "AwaitRowsParams";
  add_threads(text, spec.threads, 0);
  text.types_used.push_back({"Kernel", "AwaitRows", {"Exchange", "kThreads"}});
  return text;
}

}  // namespace moejit::compiler
