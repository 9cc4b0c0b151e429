// SPDX-License-Identifier: Apache-2.0
// Prints a group's plan for people and for programs, and makes the identity that its peers compare.
#include "compiler/planner/group_report.h"

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "compiler/support/integer.h"
#include "compiler/support/table.h"
#include "compiler/work.h"

#include <fmt/format.h>
#include <sstream>

namespace moejit::compiler {
namespace {

// Returns the share of tokens that have no expert on a given rank: the draws of K experts without
// the rank's experts, among all draws.
double share_without(const Layer& layer) {
  const int32_t elsewhere = layer.experts - layer.experts / layer.expert_parallel.ranks;
  double share = 1.0;
  for (int32_t k = 0; k < layer.top_k; ++k)
    share *= static_cast<double>(std::max(elsewhere - k, 0)) / (layer.experts - k);
  return share;
}

// A transport moves rows of all tokens to all ranks, and results of all tokens back. How long that
// takes at least depends on the network.
GroupTraffic fixed_traffic(const Layer& layer, GroupTraffic traffic) {
  const bool sends_rows = layer.expert_parallel.combine == Combine::kRows;
  const int64_t others = layer.expert_parallel.ranks - 1;
  const int64_t choices = layer.top_k + layer.shared.experts;
  const int64_t results = sends_rows ? others * choices : others;
  traffic.choice_bytes = 8 * choices;
  traffic.remote_ranks = static_cast<double>(others);
  traffic.results = static_cast<double>(results);
  traffic.dispatch_bytes = static_cast<double>(others * (traffic.choice_bytes + traffic.row_bytes));
  traffic.combine_bytes = static_cast<double>(results * traffic.result_bytes);
  return traffic;
}

// Returns the bytes that a call of a phase sends to each other rank.
int64_t block_bytes_of(const Plan& plan, std::string_view phase) {
  int64_t bytes = 0;
  for (const CollectivePlan& step : plan.collectives)
    if (step.phase == phase) bytes += block_bytes(step);
  return bytes;
}

std::string fixed_traffic_text(const Plan& plan) {
  std::string text = fmt::format(
      "\n{} moves the same bytes in every call, whatever its tokens and their routing: {} to each "
      "other rank in a forward call",
      to_string(plan.layer->expert_parallel.transport), block_bytes_of(plan, "forward"));
  if (has_backward(*plan.layer))
    text += fmt::format(", {} in a backward call", block_bytes_of(plan, "backward"));
  return text + "\n\n";
}

// Returns how long the wire is busy at least with what a rank sends in a call of a phase.
double floor_us_of(const Plan& plan, std::string_view phase) {
  int64_t bytes = 0;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.phase == phase) bytes += kernel.sent_bytes;
  return static_cast<double>(bytes) / kLinkBytesPerMicrosecond;
}

// Says how long the wire is busy with a whole call.
std::string floor_text(const Plan& plan) {
  std::string text = fmt::format("on the wire a forward call takes no less than {:.1f} us",
                                 floor_us_of(plan, "forward"));
  if (has_backward(*plan.layer))
    text += fmt::format(", a backward call {:.1f} us", floor_us_of(plan, "backward"));
  return text + "; where some ranks' experts are chosen more often, the busiest link decides\n\n";
}

std::string traffic_text(const Plan& plan) {
  if (uses_collectives(*plan.layer)) return fixed_traffic_text(plan);
  const GroupTraffic traffic = group_traffic(*plan.layer);
  const std::string of_token = fmt::format(
      "\non the wire for a token: {} bytes of choices to each other rank; a row of {} bytes to "
      "each "
      "of {:.2f} other ranks in the mean, and {:.2f} rows of {} bytes back\n"
      "that is {:.0f} bytes out and {:.0f} back; for {} tokens no less than {:.1f} us and {:.1f} "
      "us\n",
      traffic.choice_bytes, traffic.row_bytes, traffic.remote_ranks, traffic.results,
      traffic.result_bytes, traffic.dispatch_bytes, traffic.combine_bytes, plan.layer->max_tokens,
      traffic.dispatch_floor_us, traffic.combine_floor_us);
  return of_token + floor_text(plan);
}

}  // namespace

GroupTraffic group_traffic(const Layer& layer) {
  const int64_t columns = layer.hidden, others = layer.expert_parallel.ranks - 1;
  GroupTraffic traffic;
  traffic.row_bytes =
      layer.dispatch == Dispatch::kFp8 ? columns + 4 * ceil_div(columns, 128) : 2 * columns;
  traffic.result_bytes = 2 * columns;
  const bool sends_rows = layer.expert_parallel.combine == Combine::kRows;
  if (uses_collectives(layer)) return fixed_traffic(layer, traffic);
  traffic.choice_bytes = 8 * int64_t{layer.top_k + layer.shared.experts};
  traffic.remote_ranks = static_cast<double>(others) * (1.0 - share_without(layer));
  traffic.dispatch_bytes = static_cast<double>(others * traffic.choice_bytes) +
                           traffic.remote_ranks * static_cast<double>(traffic.row_bytes);
  traffic.results = sends_rows
                        ? static_cast<double>(layer.top_k * others) / layer.expert_parallel.ranks
                        : traffic.remote_ranks;
  traffic.combine_bytes = traffic.results * static_cast<double>(traffic.result_bytes);
  const auto tokens = static_cast<double>(layer.max_tokens);
  traffic.dispatch_floor_us = tokens * traffic.dispatch_bytes / kLinkBytesPerMicrosecond;
  traffic.combine_floor_us = tokens * traffic.combine_bytes / kLinkBytesPerMicrosecond;
  return traffic;
}

std::vector<std::string> group_identity(const Plan& plan) {
  std::vector<std::string> fields = {
      fmt::format("moejit={}", MOEJIT_VERSION),
      fmt::format("target={}", to_string(plan.target)),
  };
  Layer unnamed = *plan.layer;
  unnamed.name.clear();
  std::istringstream lines(to_json(unnamed));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end_of_key = line.find("\": ");
    if (end_of_key == std::string::npos) continue;  // a brace
    std::string value = line.substr(end_of_key + 3);
    if (value.ends_with(',')) value.pop_back();
    fields.push_back(fmt::format("{}={}", line.substr(3, end_of_key - 3), value));
  }
  fields.push_back(fmt::format("plan_digest={}", plan_digest(plan)));
  return fields;
}

std::string group_text(const Plan& plan, int32_t width) {
  std::string text = fmt::format(
      "layer \"{}\" on a group of {} ranks, combine {}: {} experts and {} of {} slots each\n",
      plan.layer->name, plan.layer->expert_parallel.ranks,
      to_string(plan.layer->expert_parallel.combine), plan.layer->local_experts,
      plan.layer->max_tokens, plan.layer->expert_parallel.ranks * plan.layer->max_tokens);
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"group memory of a rank"}, {"bytes", kRight}, {"offset", kRight}});
  for (const PlacedTensor& tensor : plan.group->memory.tensors)
    table.add({tensor.name, std::to_string(tensor.bytes), std::to_string(tensor.offset)});
  table.add({"all", std::to_string(plan.group->memory.bytes), ""});
  return text + "\n" + table.text(width) + traffic_text(plan);
}

Json group_json(const Plan& plan) {
  const GroupTraffic traffic = group_traffic(*plan.layer);
  Json tensors = Json::array();
  for (const PlacedTensor& tensor : plan.group->memory.tensors)
    tensors.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}, {"offset", tensor.offset}});
  Json group = {{"ranks", plan.layer->expert_parallel.ranks},
                {"combine", to_string(plan.layer->expert_parallel.combine)},
                {"transport", to_string(plan.layer->expert_parallel.transport)},
                {"memory_bytes", plan.group->memory.bytes},
                {"memory", tensors},
                {"row_bytes", traffic.row_bytes},
                {"result_bytes", traffic.result_bytes},
                {"choice_bytes", traffic.choice_bytes},
                {"remote_ranks_of_token", json_number(traffic.remote_ranks)},
                {"results_of_token", json_number(traffic.results)},
                {"dispatch_bytes_of_token", json_number(traffic.dispatch_bytes)},
                {"combine_bytes_of_token", json_number(traffic.combine_bytes)},
                {"dispatch_floor_us", json_number(traffic.dispatch_floor_us)},
                {"combine_floor_us", json_number(traffic.combine_floor_us)}};
  if (!uses_collectives(*plan.layer)) {
    group["forward_floor_us"] = json_number(floor_us_of(plan, "forward"));
    group["backward_floor_us"] = json_number(floor_us_of(plan, "backward"));
  }
  return group;
}

}  // namespace moejit::compiler
