// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/call_row.h"

#include "runtime/bindings/graph/failure.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace moejit::graph {
namespace {

constexpr std::size_t kWeightDims = 3;  // of w1 and w2; biases have fewer

using Taken = std::span<const moejit_call_tensor>;

Taken taken_by(const moejit_call_info& call) { return {call.tensors, call.tensor_count}; }

std::vector<moejit_call_info> calls_of(const moejit_plan* plan, const moejit_plan_info& info) {
  std::vector<moejit_call_info> calls(info.call_count);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].struct_size = sizeof calls[i];
    check(moejit_plan_get_call(plan, i, &calls[i]));
  }
  return calls;
}

// Returns the argument of a call that a tensor of the plan belongs to; adds it if there is none.
CallArgument& argument_of(std::vector<CallArgument>& arguments, const PlannedTensor& tensor,
                          const PlanRows& rows) {
  if (tensor.role != MOEJIT_ROLE_QUANTIZED)
    return arguments.emplace_back(CallArgument{.name = tensor.name, .planned = &tensor});
  const QuantizedBlock& block = rows.quantized[static_cast<std::size_t>(tensor.quantized_block)];
  const auto found = std::ranges::find(arguments, &block, &CallArgument::block);
  if (found != arguments.end()) return *found;
  return arguments.emplace_back(
      CallArgument{.kind = CallArgument::Kind::kQuantized, .name = block.name, .block = &block});
}

void add_tensor(std::vector<CallArgument>& arguments, const moejit_call_tensor& taken,
                const PlanRows& rows) {
  const PlannedTensor& tensor = rows.tensors[taken.index];
  CallArgument& argument = argument_of(arguments, tensor, rows);
  const bool is_read = (taken.access & MOEJIT_ACCESS_READ) != 0;
  argument.is_read |= is_read;
  argument.is_written |= (taken.access & MOEJIT_ACCESS_WRITE) != 0;
  if (argument.kind == CallArgument::Kind::kTensor) {
    argument.is_optional = taken.is_optional != 0;
    argument.is_shape_only = taken.is_shape_only != 0;
    return;
  }
  argument.slices.push_back(&tensor);
  if (is_read) argument.digest = &tensor;
}

void add_block(std::vector<CallArgument>& arguments, CallArgument::Kind kind, const char* name,
               uint32_t access) {
  if (access != MOEJIT_ACCESS_NONE)
    arguments.push_back({.kind = kind,
                         .name = name,
                         .is_read = (access & MOEJIT_ACCESS_READ) != 0,
                         .is_written = (access & MOEJIT_ACCESS_WRITE) != 0});
}

// Returns the tensors that a call only reads, with no block of quantized weights among them.
std::vector<CallArgument> name_quantized(const std::vector<CallArgument>& reads) {
  std::vector<CallArgument> named;
  for (const CallArgument& argument : reads) {
    if (argument.kind != CallArgument::Kind::kQuantized) {
      named.push_back(argument);
      continue;
    }
    for (const PlannedTensor* slice : argument.slices)  // a copy of codes is not cheap
      named.push_back({.name = slice->name,
                       .planned = slice,
                       .is_read = true,
                       .may_be_copied = slice->dtype.bits == 32});
  }
  return named.size() == reads.size() ? std::vector<CallArgument>() : named;
}

CallRow row_of(const moejit_call_info& call, const moejit_plan_info& plan, const PlanRows& rows) {
  CallRow row{.name = call.name,
              .workspace_bytes = call.workspace_bytes,
              .is_of_all_ranks = call.is_of_all_ranks != 0};
  std::vector<CallArgument> arguments;
  for (const moejit_call_tensor& taken : taken_by(call)) add_tensor(arguments, taken, rows);
  if (plan.saved_bytes > 0) add_block(arguments, CallArgument::Kind::kSaved, "saved", call.saved);
  if (plan.deferred_bytes > 0)
    add_block(arguments, CallArgument::Kind::kDeferred, "deferred", call.deferred);
  const bool quantizes = std::ranges::any_of(arguments, [](const CallArgument& argument) {
    return argument.kind == CallArgument::Kind::kQuantized && argument.is_written;
  });
  for (CallArgument& argument : arguments) {
    // A copy of w1 or w2 in each call would be too dear. A call that quantizes them reads all of
    // them anyway.
    argument.may_be_copied = argument.kind == CallArgument::Kind::kTensor && !argument.is_written &&
                             (quantizes || argument.planned->role != MOEJIT_ROLE_WEIGHT ||
                              argument.planned->shape.size() < kWeightDims);
    (argument.is_written ? row.writes : row.reads).push_back(std::move(argument));
  }
  row.named_reads = name_quantized(row.reads);
  return row;
}

}  // namespace

void read_rows(const moejit_plan* plan, const moejit_plan_info& info, PlanRows& rows) {
  const std::vector<moejit_call_info> calls = calls_of(plan, info);
  rows.tensors.reserve(info.tensor_count);
  for (std::size_t i = 0; i < info.tensor_count; ++i) {
    moejit_tensor_info tensor{};
    tensor.struct_size = sizeof tensor;
    check(moejit_plan_get_tensor(plan, i, &tensor));
    rows.tensors.push_back(planned(tensor, i));
  }
  rows.quantized[0].bytes = info.quantized_rowwise_bytes;
  rows.quantized[1].bytes = info.quantized_colwise_bytes;
  for (const moejit_call_info& call : calls) rows.calls.push_back(row_of(call, info, rows));
}

std::string names_of(const std::vector<CallArgument>& arguments) {
  std::string names;
  for (const CallArgument& argument : arguments)
    names += (names.empty() ? "" : ", ") + argument.name;
  return names.empty() ? "none" : names;
}

}  // namespace moejit::graph
