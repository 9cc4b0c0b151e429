// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_dispatch.h"
#include "runtime/bindings/c/moejit_state.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>

namespace {

using moejit::Result;
using moejit::Stage;
using moejit::bindings::CallerTensor;
using moejit::bindings::guarded;
using moejit::bindings::hand_out;
using moejit::bindings::null_argument;
using moejit::compiler::CallTensor;
using moejit::compiler::LayerPlan;

CallerTensor layer_tensor(const moejit::compiler::Plan& plan, std::size_t slot) {
  CallerTensor result = moejit::bindings::caller_tensor(plan.tensors[slot]);
  constexpr std::pair<std::string_view, uint32_t> kCalls[] = {
      {"update_weights", MOEJIT_USED_BY_UPDATE_WEIGHTS},
      {"update_forward_scales", MOEJIT_USED_BY_UPDATE_SCALES},
      {"update_backward_scales", MOEJIT_USED_BY_UPDATE_SCALES},
      {"forward", MOEJIT_USED_BY_FORWARD},
      {"quantize", MOEJIT_USED_BY_QUANTIZE},
      {"experts", MOEJIT_USED_BY_EXPERTS},
      {"backward", MOEJIT_USED_BY_BACKWARD},
      {"quantize_grad", MOEJIT_USED_BY_QUANTIZE_GRAD},
      {"experts_grad", MOEJIT_USED_BY_EXPERTS_GRAD},
      {"backward_data", MOEJIT_USED_BY_BACKWARD_DATA},
      {"backward_weights", MOEJIT_USED_BY_BACKWARD_WEIGHTS}};
  for (const moejit::compiler::CallPlan& call : plan.calls)
    for (const auto& [name, bit] : kCalls)
      if (call.name == name && (std::ranges::count(call.tensors, slot, &CallTensor::slot) > 0 ||
                                touches(plan, call, plan.tensors[slot].name)))
        result.used_by |= bit;
  return result;
}

Result<LayerPlan> plan_of(std::string_view json, const char* target,
                          const moejit_layer_options& options) {
  const char* const source_name = options.source_name == nullptr ? "layer" : options.source_name;
  MOEJIT_TRY_ASSIGN(const auto layer, moejit::compiler::parse_layer(json, source_name));
  MOEJIT_TRY(check_is_of_one_rank(layer));
  MOEJIT_TRY_ASSIGN(const auto parsed_target, moejit::compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const auto tuning, moejit::bindings::read_tuning(options.tuning));
  return plan_layer(layer, parsed_target,
                    {.keep_intermediates = options.keep_intermediates != 0,
                     .measure_gemms = options.measure_gemms != 0,
                     .tuning = tuning.get()});
}

// Checks both arguments of a function that hands out a text, and sets the text to NULL.
Result<void> check_arguments(const moejit_layer* layer, const char** text, const char* function) {
  if (text != nullptr) *text = nullptr;
  if (layer == nullptr) return null_argument(Stage::kPlan, "layer", function);
  if (text == nullptr) return null_argument(Stage::kPlan, "the result", function);
  return {};
}

}  // namespace

moejit_error_code moejit_layer_create(const char* json, size_t json_bytes, const char* target,
                                      const moejit_layer_options* options, moejit_layer** layer) {
  constexpr const char* kFunction = "moejit_layer_create";
  return guarded(Stage::kParse, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kParse, "layer", kFunction);
    *layer = nullptr;
    if (json == nullptr) return null_argument(Stage::kParse, "json", kFunction);
    if (target == nullptr) return null_argument(Stage::kParse, "target", kFunction);
    MOEJIT_TRY_ASSIGN(const auto given, moejit::bindings::read_record(Stage::kParse, options,
                                                                      "moejit_layer_options"));
    auto handle = std::make_unique<moejit_layer>();
    MOEJIT_TRY_ASSIGN(handle->plan, plan_of({json, json_bytes}, target, given));
    MOEJIT_TRY_ASSIGN(handle->layout, moejit::compiler::MemoryLayout::make(handle->plan));
    handle->target = to_string(handle->plan.target);
    handle->json = to_json(handle->plan.layer);
    handle->plan_digest = plan_digest(handle->plan);
    for (std::size_t slot = 0; slot < handle->plan.tensors.size(); ++slot)
      handle->tensors.push_back(layer_tensor(handle->plan, slot));
    *layer = handle.release();
    return {};
  });
}

void moejit_layer_destroy(moejit_layer* layer) { delete layer; }

moejit_error_code moejit_layer_get_info(const moejit_layer* layer, moejit_layer_info* info) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kPlan, "layer", "moejit_layer_get_info");
    if (info == nullptr) return null_argument(Stage::kPlan, "info", "moejit_layer_get_info");
    const LayerPlan& plan = layer->plan;
    const moejit::compiler::LinearBound& saved = layer->layout.saved_bound();
    const moejit::compiler::LinearBound& deferred = layer->layout.deferred_bound();
    return moejit::bindings::write_record(Stage::kPlan,
                                          {.name = plan.layer.name.c_str(),
                                           .target = layer->target.c_str(),
                                           .tensor_count = plan.tensors.size(),
                                           .kernel_count = plan.kernels.size(),
                                           .max_tokens = plan.layer.max_tokens,
                                           .workspace_bytes = plan.workspace_bytes,
                                           .saved_bytes = plan.saved_bytes,
                                           .quantized_weight_bytes = plan.quantized_weight_bytes,
                                           .has_backward = has_backward(plan.layer),
                                           .is_prepared = layer->prepared != nullptr,
                                           .saved_fixed_bytes = saved.fixed,
                                           .saved_bytes_per_token = saved.per_token,
                                           .plan_digest = layer->plan_digest.c_str(),
                                           .deferred_bytes = plan.deferred_bytes,
                                           .deferred_fixed_bytes = deferred.fixed,
                                           .deferred_bytes_per_token = deferred.per_token},
                                          info, "moejit_layer_info");
  });
}

moejit_error_code moejit_layer_get_sizes(const moejit_layer* layer, int64_t tokens,
                                         moejit_layer_sizes* sizes) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kPlan, "layer", "moejit_layer_get_sizes");
    if (sizes == nullptr) return null_argument(Stage::kPlan, "sizes", "moejit_layer_get_sizes");
    MOEJIT_TRY_ASSIGN(const auto of_call, layer->layout.sizes(tokens));
    return moejit::bindings::write_record(Stage::kPlan,
                                          {.workspace_bytes = of_call.workspace_bytes,
                                           .saved_bytes = of_call.saved_bytes,
                                           .deferred_bytes = of_call.deferred_bytes},
                                          sizes, "moejit_layer_sizes");
  });
}

moejit_error_code moejit_layer_get_json(const moejit_layer* layer, const char** json) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_arguments(layer, json, "moejit_layer_get_json"));
    *json = layer->json.c_str();
    return {};
  });
}

moejit_error_code moejit_layer_get_plan_json(const moejit_layer* layer, const char** json) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_arguments(layer, json, "moejit_layer_get_plan_json"));
    return hand_out(layer->plan_json, json, [&] { return plan_to_json(layer->plan); });
  });
}

moejit_error_code moejit_layer_get_plan_text(const moejit_layer* layer, int32_t explain,
                                             const char** text) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_arguments(layer, text, "moejit_layer_get_plan_text"));
    return hand_out(layer->plan_text[explain != 0 ? 1 : 0], text,
                    [&] { return print_plan(layer->plan, explain != 0); });
  });
}
