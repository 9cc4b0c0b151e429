// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/layer_schema.h"
#include "compiler/parser/read_fields.h"
#include "compiler/parser/read_layer_parts.h"

#include <array>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {
namespace {

constexpr std::array kSharedKeys = std::to_array<std::string_view>({"experts", "gate"});

tl::unexpected<Error> refuse_shared(const JsonView& root, std::string what, std::string hint) {
  return root.find("shared")->fail(ErrorCode::kUnsupported, std::move(what), std::move(hint));
}

}  // namespace

Result<SharedExperts> read_shared(const JsonView& root) {
  const std::optional<JsonView> shared = root.find("shared");
  if (!shared) return SharedExperts{};
  MOEJIT_TRY(shared->check_object());
  MOEJIT_TRY(shared->check_keys(kSharedKeys));
  MOEJIT_TRY_ASSIGN(const int32_t experts, read_int_at(*shared, "experts", kSharedRange));
  MOEJIT_TRY_ASSIGN(const bool gate, read_bool_at(*shared, "gate", false));
  return SharedExperts{.experts = experts, .gate = gate};
}

Result<void> check_fields_of_shared(const JsonView& root, const Layer& layer) {
  if (!has_shared(layer)) return {};
  if (!is_of_group(layer) && layer.local_experts != layer.experts)
    return refuse_shared(
        root,
        fmt::format("got shared experts with {} of {} experts here, wanted all of them",
                    layer.local_experts, layer.experts),
        "tokens that other ranks send have their shared experts there: add "
        "expert_parallel, or leave shared out and compute them beside the layer");
  if (layer.dispatch_calls)
    return refuse_shared(root, "got shared experts with dispatch_calls, wanted it false",
                         "rows that the host has dispatched are not this rank's tokens");
  const Layer all = with_shared_chosen(layer);
  if (all.experts > kMaxExperts)
    return refuse_shared(
        root,
        fmt::format("got {} experts with the shared ones of each rank, wanted at most {}",
                    all.experts, kMaxExperts),
        "compute the shared experts beside the layer");
  if (is_of_group(layer) && all.top_k > kMostChoices)
    return refuse_shared(
        root,
        fmt::format("got {} experts of a token, wanted at most {} with expert_parallel", all.top_k,
                    kMostChoices),
        "an exchange between the ranks of a group takes no more");
  return {};
}

}  // namespace moejit::compiler
