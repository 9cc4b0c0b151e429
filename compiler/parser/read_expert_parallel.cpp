// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_expert_parallel.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::array kExpertParallelKeys =
    std::to_array<std::string_view>({"ranks", "combine", "transport", "sms"});
constexpr std::array kCombines = std::to_array<std::string_view>({"partial", "rows"});
constexpr std::array kTransports = std::to_array<std::string_view>({"peer", "nccl"});

// The limits of an exchange. The parameter records have a place for each of 8 ranks. A token's
// choices, and the flags of a rank's chunks, fit into what one CTA looks at.
constexpr IntRange kRanksRange{.lowest = 1, .highest = 8};
constexpr IntRange kSmsRange{.lowest = 1, .highest = 256};
constexpr int64_t kMostTokens = 16384;
constexpr int64_t kMostChoices = 32;

Result<Combine> read_combine(const JsonView& group) {
  const std::optional<JsonView> view = group.find("combine");
  if (!view) return Combine::kPartial;
  MOEJIT_TRY_ASSIGN(const std::size_t index, view->read_choice(kCombines));
  return index == 0 ? Combine::kPartial : Combine::kRows;
}

Result<Transport> read_transport(const JsonView& group) {
  const std::optional<JsonView> view = group.find("transport");
  if (!view) return Transport::kPeer;
  MOEJIT_TRY_ASSIGN(const std::size_t index, view->read_choice(kTransports));
  return index == 0 ? Transport::kPeer : Transport::kNccl;
}

Result<int32_t> read_sms(const JsonView& group, Transport transport) {
  const std::optional<JsonView> view = group.find("sms");
  if (!view) return 0;
  MOEJIT_TRY_ASSIGN(const int64_t sms, view->read_int(kSmsRange));
  if (transport == Transport::kPeer) return static_cast<int32_t>(sms);
  return view->fail(ErrorCode::kInvalidValue,
                    fmt::format(R"(got {} with the transport "nccl", wanted it left out)", sms),
                    "NCCL moves the bytes there: NCCL_MAX_CTAS limits what it takes");
}

Result<void> refuse_more(const JsonView& root, std::string_view key, int64_t got, int64_t most) {
  if (got <= most) return {};
  return root.find(key)->fail(
      ErrorCode::kUnsupported,
      fmt::format("got {} with expert_parallel, wanted at most {}", got, most),
      "an exchange between the ranks of a group takes no more");
}

Result<void> refuse_true(const JsonView& root, std::string_view key, bool got,
                         const std::string& hint) {
  if (!got) return {};
  return root.find(key)->fail(ErrorCode::kUnsupported,
                              "got true with expert_parallel, wanted false", hint);
}

}  // namespace

Result<ExpertParallel> read_expert_parallel(const JsonView& root, int32_t experts) {
  const std::optional<JsonView> group = root.find("expert_parallel");
  if (!group) return ExpertParallel{};
  MOEJIT_TRY(group->check_object());
  MOEJIT_TRY(group->check_keys(kExpertParallelKeys));
  MOEJIT_TRY_ASSIGN(const JsonView view, group->at("ranks"));
  MOEJIT_TRY_ASSIGN(const int64_t ranks, view.read_int(kRanksRange));
  if (experts % ranks != 0)
    return view.fail(
        ErrorCode::kInvalidValue,
        fmt::format("got {} with {} experts, wanted a divisor of the experts", ranks, experts),
        "each rank has as many experts");
  MOEJIT_TRY_ASSIGN(const Combine combine, read_combine(*group));
  MOEJIT_TRY_ASSIGN(const Transport transport, read_transport(*group));
  MOEJIT_TRY_ASSIGN(const int32_t sms, read_sms(*group, transport));
  return ExpertParallel{
      .ranks = static_cast<int32_t>(ranks), .combine = combine, .transport = transport, .sms = sms};
}

int32_t experts_of_rank(const Layer& layer) {
  return is_of_group(layer) ? layer.experts / layer.expert_parallel.ranks : layer.experts;
}

Result<void> check_fields_of_group(const JsonView& root, const Layer& layer) {
  if (!is_of_group(layer)) return {};
  if (layer.local_experts != experts_of_rank(layer))
    return root.find("local_experts")
        ->fail(ErrorCode::kInvalidValue,
               fmt::format("got {} with {} experts on {} ranks, wanted {}", layer.local_experts,
                           layer.experts, layer.expert_parallel.ranks, experts_of_rank(layer)),
               "leave the field out: expert_parallel tells it");
  MOEJIT_TRY(refuse_more(root, "max_tokens", layer.max_tokens, kMostTokens));
  MOEJIT_TRY(refuse_more(root, "top_k", layer.top_k, kMostChoices));
  MOEJIT_TRY(refuse_true(root, "dispatch_calls", layer.dispatch_calls,
                         "the ranks of a group dispatch rows themselves: leave the field out"));
  MOEJIT_TRY(refuse_true(root, "backward_halves", layer.backward_halves,
                         "results go home at the end of a whole backward call"));
  if (layer.foreign_experts == ForeignExperts::kIgnore)
    return root.find("foreign_experts")
        ->fail(ErrorCode::kInvalidValue, R"(got "ignore" with expert_parallel, wanted "report")",
               "a group has all experts: no id is that of another rank");
  if (has_backward(layer) && !computes(layer, Gradient::kDx))
    return root.find("gradients")
        ->fail(ErrorCode::kUnsupported, "got no dx with expert_parallel, wanted it",
               "rows of dx are what ends the exchange of a backward call");
  return {};
}

}  // namespace moejit::compiler
