// SPDX-License-Identifier: Apache-2.0
#include "runtime/group_layer.h"

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/bindings/c/call_tensors.h"
#include "runtime/bindings/c/group_handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::hand_out;
using moejit::bindings::null_argument;
using moejit::compiler::GradientMode;
using moejit::compiler::GroupPlan;
using moejit::runtime::GroupLayer;

uint32_t used_by(const GroupPlan& plan, const std::string& name) {
  uint32_t bits = 0;
  if (call_takes(plan, "update_weights", name)) bits |= MOEJIT_USED_BY_UPDATE_WEIGHTS;
  if (call_takes(plan, "forward", name)) bits |= MOEJIT_USED_BY_FORWARD;
  if (call_takes(plan, "backward", name)) bits |= MOEJIT_USED_BY_BACKWARD;
  for (const char* const call : {"update_forward_scales", "update_backward_scales"})
    if (call_takes(plan, call, name)) bits |= MOEJIT_USED_BY_UPDATE_SCALES;
  return bits;
}

std::string text_of(const std::vector<std::string>& identity) {
  std::string text;
  for (const std::string& field : identity) text += field + "\n";
  return text;
}

// Checks both arguments of a function that hands out a text, and sets the text to NULL.
Result<void> check_text(const moejit_group_layer* layer, const char** text, const char* function) {
  if (text != nullptr) *text = nullptr;
  if (layer == nullptr) return null_argument(Stage::kPlan, "layer", function);
  if (text == nullptr) return null_argument(Stage::kPlan, "the result", function);
  return {};
}

// Checks the caller's record and tensors, and calls `body` with them in the runtime's form.
template <typename Body>
moejit_error_code with_call(moejit_group_layer* layer, const moejit_call* call, uint32_t call_bit,
                            const char* function, Body&& body) {
  return guarded(Stage::kLaunch, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kLaunch, "layer", function);
    if (call == nullptr) return null_argument(Stage::kLaunch, "call", function);
    if (layer->prepared == nullptr)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("{} is not prepared", layer->callers.subject),
                  "call moejit_group_layer_prepare() once before");
    moejit::bindings::GivenCall given;
    MOEJIT_TRY(
        moejit::bindings::read_call(layer->callers, *layer, *call, call_bit, function, given));
    return body(*layer->prepared, given);
  });
}

}  // namespace

moejit_error_code moejit_group_layer_create(const char* json, size_t json_bytes, const char* target,
                                            int64_t rank, const moejit_group_layer_options* options,
                                            moejit_group_layer** layer) {
  constexpr const char* kFunction = "moejit_group_layer_create";
  return guarded(Stage::kParse, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kParse, "layer", kFunction);
    *layer = nullptr;
    if (json == nullptr) return null_argument(Stage::kParse, "json", kFunction);
    if (target == nullptr) return null_argument(Stage::kParse, "target", kFunction);
    MOEJIT_TRY_ASSIGN(const auto given, moejit::bindings::read_record(
                                            Stage::kParse, options, "moejit_group_layer_options"));
    if (given.timeout_ms < 0)
      return fail(Stage::kParse, ErrorCode::kInvalidValue,
                  fmt::format("timeout_ms of moejit_group_layer_options is {}, wanted at least 0",
                              given.timeout_ms));
    MOEJIT_TRY_ASSIGN(const auto described,
                      moejit::compiler::parse_layer({json, json_bytes}, "layer"));
    MOEJIT_TRY_ASSIGN(const auto parsed, moejit::compiler::parse_target(target));
    MOEJIT_TRY_ASSIGN(const auto tuning, moejit::bindings::read_tuning(given.tuning));
    constexpr int64_t kDefaultTimeout = 10000;
    auto handle = std::make_unique<moejit_group_layer>();
    MOEJIT_TRY_ASSIGN(handle->plan,
                      plan_group_layer(described, parsed,
                                       {.tuning = tuning.get(),
                                        .rank = rank,
                                        .timeout_ms = given.timeout_ms == 0 ? kDefaultTimeout
                                                                            : given.timeout_ms}));
    handle->callers.subject = named_layer(described);
    handle->callers.target = parsed;
    std::ranges::copy_if(handle->plan.tensors, std::back_inserter(handle->callers.tensors),
                         [](const auto& tensor) { return is_callers(tensor.role); });
    handle->identity = text_of(group_identity(handle->plan));
    for (const auto& tensor : handle->callers.tensors) {
      moejit::bindings::CallerTensor caller = moejit::bindings::caller_tensor(tensor);
      caller.used_by = used_by(handle->plan, tensor.name);
      handle->tensors.push_back(std::move(caller));
    }
    *layer = handle.release();
    return {};
  });
}

void moejit_group_layer_destroy(moejit_group_layer* layer) { delete layer; }

moejit_error_code moejit_group_layer_get_info(const moejit_group_layer* layer,
                                              moejit_group_layer_info* info) {
  constexpr const char* kFunction = "moejit_group_layer_get_info";
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kPlan, "layer", kFunction);
    if (info == nullptr) return null_argument(Stage::kPlan, "info", kFunction);
    const GroupPlan& plan = layer->plan;
    return moejit::bindings::write_record(Stage::kPlan,
                                          {.identity = layer->identity.c_str(),
                                           .ranks = plan.layer.expert_parallel.ranks,
                                           .rank = plan.rank,
                                           .max_tokens = plan.layer.max_tokens,
                                           .memory_bytes = plan.memory.bytes,
                                           .workspace_bytes = plan.workspace_bytes,
                                           .saved_bytes = plan.saved_bytes,
                                           .tensor_count = layer->callers.tensors.size()},
                                          info, "moejit_group_layer_info");
  });
}

moejit_error_code moejit_group_layer_get_tensor(const moejit_group_layer* layer, size_t index,
                                                moejit_tensor_info* info) {
  constexpr const char* kFunction = "moejit_group_layer_get_tensor";
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kPlan, "layer", kFunction);
    if (info == nullptr) return null_argument(Stage::kPlan, "info", kFunction);
    return moejit::bindings::describe_tensor(layer->callers, *layer, index, info);
  });
}

moejit_error_code moejit_group_layer_get_plan_json(const moejit_group_layer* layer,
                                                   const char** json) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_text(layer, json, "moejit_group_layer_get_plan_json"));
    return hand_out(layer->plan_json, json, [&] { return plan_to_json(layer->plan); });
  });
}

moejit_error_code moejit_group_layer_get_plan_text(const moejit_group_layer* layer, int32_t explain,
                                                   const char** text) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_text(layer, text, "moejit_group_layer_get_plan_text"));
    return hand_out(layer->plan_text[explain != 0 ? 1 : 0], text,
                    [&] { return print_plan(layer->plan, explain != 0); });
  });
}

moejit_error_code moejit_group_layer_prepare(moejit_group_layer* layer, moejit_engine* engine,
                                             moejit_group* group) {
  constexpr const char* kFunction = "moejit_group_layer_prepare";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kLoad, "layer", kFunction);
    if (engine == nullptr) return null_argument(Stage::kLoad, "engine", kFunction);
    if (group == nullptr) return null_argument(Stage::kLoad, "group", kFunction);
    if (layer->prepared != nullptr)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("{} is prepared already", layer->callers.subject),
                  "create a layer of its own for each group");
    MOEJIT_TRY_ASSIGN(layer->prepared,
                      GroupLayer::prepare(layer->plan, *group->group, *engine->engine));
    layer->device = group->device;
    layer->place = group->place;
    return {};
  });
}

moejit_error_code moejit_group_layer_update_weights(moejit_group_layer* layer,
                                                    const moejit_call* call) {
  return with_call(layer, call, MOEJIT_USED_BY_UPDATE_WEIGHTS, "moejit_group_layer_update_weights",
                   [](GroupLayer& prepared, const moejit::bindings::GivenCall& given) {
                     return prepared.update_weights(given.tensors.span(), given.stream);
                   });
}

moejit_error_code moejit_group_layer_update_scales(moejit_group_layer* layer, moejit_pass pass,
                                                   const moejit_call* call) {
  constexpr const char* kFunction = "moejit_group_layer_update_scales";
  return with_call(
      layer, call, MOEJIT_USED_BY_UPDATE_SCALES, kFunction,
      [&](GroupLayer& prepared, const moejit::bindings::GivenCall& given) -> Result<void> {
        MOEJIT_TRY_ASSIGN(const auto read, moejit::bindings::read_pass(pass, kFunction));
        return prepared.update_scales(read, given.tensors.span(), given.stream);
      });
}

moejit_error_code moejit_group_layer_forward(moejit_group_layer* layer, const moejit_call* call) {
  return with_call(layer, call, MOEJIT_USED_BY_FORWARD, "moejit_group_layer_forward",
                   [](GroupLayer& prepared, const moejit::bindings::GivenCall& given) {
                     return prepared.forward(given.tensors.span(), given.memory, given.stream);
                   });
}

moejit_error_code moejit_group_layer_backward(moejit_group_layer* layer, moejit_gradient_mode mode,
                                              const moejit_call* call) {
  constexpr const char* kFunction = "moejit_group_layer_backward";
  return with_call(
      layer, call, MOEJIT_USED_BY_BACKWARD, kFunction,
      [&](GroupLayer& prepared, const moejit::bindings::GivenCall& given) -> Result<void> {
        MOEJIT_TRY_ASSIGN(const GradientMode read, moejit::bindings::read_mode(mode, kFunction));
        return prepared.backward(given.tensors.span(), read, given.memory, given.stream);
      });
}
