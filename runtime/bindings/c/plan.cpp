// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/plan_handle.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>
#include <fmt/core.h>

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::CallerTensor;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::bindings::tell;
using moejit::bindings::write_record;
using moejit::compiler::CallPlan;
using moejit::compiler::CallTensor;
using moejit::compiler::Plan;
using moejit::compiler::PlanOptions;
using moejit::compiler::Target;

CallerTensor caller_tensor(const Plan& plan, std::size_t slot) {
  const moejit::compiler::TensorPlan& tensor = plan.tensors[slot];
  CallerTensor result{.offset = std::max(block_offset(tensor), tensor.group_offset)};
  for (const moejit::compiler::Dim& dim : tensor.shape) {
    result.shape.push_back(dim.value);
    result.symbols.push_back(dim.symbol.c_str());
  }
  return result;
}

bool takes(const Plan& plan, std::string_view name, std::size_t slot) {
  const auto call = std::ranges::find(plan.calls, name, &CallPlan::name);
  return call != plan.calls.end() &&
         std::ranges::find(call->tensors, slot, &CallTensor::slot) != call->tensors.end();
}

// Gives each tensor of quantized weights its place in a block.
void place_quantized(const Plan& plan, moejit_plan& handle) {
  constexpr int64_t kAlignment = moejit::compiler::kOffsetAlignment;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot) {
    if (plan.tensors[slot].role != moejit::compiler::TensorRole::kQuantized) continue;
    const bool only_backward = takes(plan, "backward", slot) && !takes(plan, "forward", slot);
    CallerTensor& tensor = handle.tensors[slot];
    tensor.quantized_block = only_backward ? 1 : 0;
    int64_t& bytes = handle.quantized_bytes[only_backward ? 1 : 0];
    tensor.quantized_offset = bytes;
    bytes += (plan.tensors[slot].bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

uint32_t access_of(moejit::compiler::Access access) {
  const uint32_t read = reads(access) ? MOEJIT_ACCESS_READ : MOEJIT_ACCESS_NONE;
  return read | static_cast<uint32_t>(writes(access) ? MOEJIT_ACCESS_WRITE : MOEJIT_ACCESS_NONE);
}

std::vector<moejit_call_tensor> tensors_of(const CallPlan& call) {
  std::vector<moejit_call_tensor> tensors;
  for (const CallTensor& tensor : call.tensors)
    tensors.push_back({.index = tensor.slot,
                       .access = access_of(tensor.access),
                       .is_optional = tensor.is_optional ? 1 : 0,
                       .is_shape_only = tensor.is_shape_only ? 1 : 0,
                       .padding = 0});
  return tensors;
}

moejit_kind kind_of_handle(const Plan& plan) {
  if (plan.operation) return MOEJIT_KIND_OPERATION;
  return plan.group ? MOEJIT_KIND_GROUP_LAYER : MOEJIT_KIND_LAYER;
}

Result<std::unique_ptr<moejit_plan>> handle_of(Plan planned) {
  auto handle = std::make_unique<moejit_plan>();
  const auto plan = std::make_shared<const Plan>(std::move(planned));
  handle->plan = plan;
  handle->kind = kind_of_handle(*plan);
  handle->name = name_of(*plan);
  handle->target = to_string(plan->target);
  handle->description = description_of(*plan);
  handle->plan_digest = plan_digest(*plan);
  handle->has_backward = plan->layer && has_backward(*plan->layer);
  if (plan->group)
    for (const std::string& field : group_identity(*plan)) handle->identity += field + "\n";
  handle->json.make = [plan] { return plan_to_json(*plan); };
  for (const bool explain : {false, true})
    handle->text[explain ? 1 : 0].make = [plan, explain] { return print_plan(*plan, explain); };
  MOEJIT_TRY_ASSIGN(handle->layout, moejit::compiler::MemoryLayout::make(*plan));
  for (std::size_t slot = 0; slot < plan->tensors.size(); ++slot)
    handle->tensors.push_back(caller_tensor(*plan, slot));
  place_quantized(*plan, *handle);
  for (const CallPlan& call : plan->calls) handle->calls.push_back(tensors_of(call));
  return handle;
}

Result<std::unique_ptr<moejit_plan>> plan_operation_of(std::string_view json,
                                                       const char* source_name,
                                                       const Target& target,
                                                       const PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(
      const auto operation,
      moejit::compiler::parse_operation(json, source_name == nullptr ? "operation" : source_name));
  MOEJIT_TRY_ASSIGN(Plan plan, plan_operation(operation, target, options));
  return handle_of(std::move(plan));
}

Result<std::unique_ptr<moejit_plan>> plan_layer_of(std::string_view json,
                                                   const moejit_plan_options& given,
                                                   const Target& target,
                                                   const PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(const auto layer,
                    moejit::compiler::parse_layer(
                        json, given.source_name == nullptr ? "layer" : given.source_name));
  MOEJIT_TRY(given.kind == MOEJIT_KIND_GROUP_LAYER ? check_is_of_group(layer)
                                                   : check_is_of_one_rank(layer));
  MOEJIT_TRY_ASSIGN(Plan plan, plan_layer(layer, target, options));
  return handle_of(std::move(plan));
}

Result<std::unique_ptr<moejit_plan>> plan_of(std::string_view json, const char* target_name,
                                             const moejit_plan_options& given) {
  constexpr int64_t kDefaultTimeout = 10000;
  if (given.kind < MOEJIT_KIND_ANY || given.kind > MOEJIT_KIND_GROUP_LAYER)
    return fail(
        Stage::kParse, ErrorCode::kInvalidValue,
        fmt::format("kind of moejit_plan_options is {}, wanted {} to {}", given.kind,
                    static_cast<int>(MOEJIT_KIND_ANY), static_cast<int>(MOEJIT_KIND_GROUP_LAYER)));
  if (given.timeout_ms < 0)
    return fail(Stage::kParse, ErrorCode::kInvalidValue,
                fmt::format("timeout_ms of moejit_plan_options is {}, wanted at least 0",
                            given.timeout_ms));
  MOEJIT_TRY_ASSIGN(const Target target, moejit::compiler::parse_target(target_name));
  MOEJIT_TRY_ASSIGN(const auto tuning,
                    moejit::compiler::read_tunings(given.tuning == nullptr
                                                       ? std::nullopt
                                                       : std::optional<std::string>(given.tuning)));
  const PlanOptions options{
      .keep_intermediates = given.keep_intermediates != 0,
      .measure_gemms = given.measure_gemms != 0,
      .tuning = tuning.get(),
      .rank = given.rank,
      .timeout_ms = given.timeout_ms == 0 ? kDefaultTimeout : given.timeout_ms};
  const bool is_operation =
      given.kind == MOEJIT_KIND_OPERATION ||
      (given.kind == MOEJIT_KIND_ANY && moejit::compiler::describes_operation(json));
  return is_operation ? plan_operation_of(json, given.source_name, target, options)
                      : plan_layer_of(json, given, target, options);
}

// Hands out a text, or NULL if an argument is NULL.
template <typename Get>
moejit_error_code tell_text(const moejit_plan* plan, const char** text, const char* function,
                            Get&& get) {
  if (text != nullptr) *text = nullptr;
  return tell(plan, text, "the result", function, [&]() -> Result<void> {
    *text = get();
    return {};
  });
}

}  // namespace

moejit_error_code moejit_plan_create(const char* json, size_t json_bytes, const char* target,
                                     const moejit_plan_options* options, moejit_plan** plan) {
  constexpr const char* kFunction = "moejit_plan_create";
  return guarded(Stage::kParse, [&]() -> Result<void> {
    if (plan == nullptr) return null_argument(Stage::kParse, "plan", kFunction);
    *plan = nullptr;
    if (json == nullptr) return null_argument(Stage::kParse, "json", kFunction);
    if (target == nullptr) return null_argument(Stage::kParse, "target", kFunction);
    MOEJIT_TRY_ASSIGN(const auto given,
                      moejit::bindings::read_record(Stage::kParse, options, "moejit_plan_options"));
    MOEJIT_TRY_ASSIGN(auto handle, plan_of({json, json_bytes}, target, given));
    *plan = handle.release();
    return {};
  });
}

void moejit_plan_destroy(moejit_plan* plan) { delete plan; }

moejit_error_code moejit_plan_get_info(const moejit_plan* plan, moejit_plan_info* info) {
  return tell(plan, info, "info", "moejit_plan_get_info", [&] {
    const Plan& planned = *plan->plan;
    const auto &saved = plan->layout.saved_bound(), &deferred = plan->layout.deferred_bound();
    moejit_plan_info result{.name = plan->name.c_str(),
                            .target = plan->target.c_str(),
                            .tensor_count = planned.tensors.size(),
                            .kernel_count = planned.kernels.size(),
                            .max_tokens = planned.bounds.max_tokens,
                            .workspace_bytes = planned.workspace_bytes,
                            .saved_bytes = planned.saved_bytes,
                            .quantized_weight_bytes = planned.quantized_weight_bytes,
                            .has_backward = plan->has_backward,
                            .is_prepared = plan->prepared != nullptr,
                            .saved_fixed_bytes = saved.fixed,
                            .saved_bytes_per_token = saved.per_token,
                            .plan_digest = plan->plan_digest.c_str(),
                            .deferred_bytes = planned.deferred_bytes,
                            .deferred_fixed_bytes = deferred.fixed,
                            .deferred_bytes_per_token = deferred.per_token,
                            .kind = plan->kind,
                            .call_count = planned.calls.size(),
                            .quantized_rowwise_bytes = plan->quantized_bytes[0],
                            .quantized_colwise_bytes = plan->quantized_bytes[1]};
    if (planned.group) {
      result.identity = plan->identity.c_str();
      result.ranks = planned.layer->expert_parallel.ranks;
      result.rank = planned.group->rank;
      result.memory_bytes = planned.group->memory.bytes;
    }
    return write_record(Stage::kPlan, result, info, "moejit_plan_info");
  });
}

moejit_error_code moejit_plan_get_sizes(const moejit_plan* plan, int64_t tokens,
                                        moejit_plan_sizes* sizes) {
  return tell(plan, sizes, "sizes", "moejit_plan_get_sizes", [&]() -> Result<void> {
    MOEJIT_TRY_ASSIGN(const auto of_call, plan->layout.sizes(tokens));
    return write_record(Stage::kPlan,
                        {.workspace_bytes = of_call.workspace_bytes,
                         .saved_bytes = of_call.saved_bytes,
                         .deferred_bytes = of_call.deferred_bytes},
                        sizes, "moejit_plan_sizes");
  });
}

moejit_error_code moejit_plan_get_description(const moejit_plan* plan, const char** json) {
  return tell_text(plan, json, "moejit_plan_get_description",
                   [&] { return plan->description.c_str(); });
}

moejit_error_code moejit_plan_get_json(const moejit_plan* plan, const char** json) {
  return tell_text(plan, json, "moejit_plan_get_json", [&] { return plan->json.get(); });
}

moejit_error_code moejit_plan_get_text(const moejit_plan* plan, int32_t explain,
                                       const char** text) {
  return tell_text(plan, text, "moejit_plan_get_text",
                   [&] { return plan->text[explain != 0 ? 1 : 0].get(); });
}
