// SPDX-License-Identifier: Apache-2.0
#include "runtime/group.h"

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/bindings/c/call_tensors.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_group.h"
#include "runtime/bindings/c/records.h"
#include "runtime/group_layer.h"
#include "runtime/simulator_group.h"

#include <algorithm>
#include <fmt/core.h>
#include <sstream>

struct moejit_group_layer : moejit::bindings::PlanHandle {
  moejit::compiler::GroupPlan plan;
  moejit::compiler::Plan callers;  // has the tensors of callers alone
  std::string identity;
  std::unique_ptr<moejit::runtime::GroupLayer> prepared;
};

struct moejit_group {
  std::shared_ptr<moejit::runtime::Device> device;
  DLDevice place{};
  std::unique_ptr<moejit::runtime::Group> group;
};

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::compiler::GradientMode;
using moejit::compiler::GroupPlan;
using moejit::compiler::Phase;
using moejit::runtime::GroupLayer;
using moejit::runtime::GroupMember;

bool is_used_in(const GroupPlan& plan, Phase phase, const std::string& name) {
  const auto* const tensor = find_tensor(plan, name);
  return tensor != nullptr && is_used(plan, *tensor, {phase});
}

uint32_t used_by(const GroupPlan& plan, const std::string& name) {
  uint32_t bits = 0;
  if (is_used_in(plan, Phase::kWeights, name)) bits |= MOEJIT_USED_BY_UPDATE_WEIGHTS;
  if (is_used_in(plan, Phase::kForward, name)) bits |= MOEJIT_USED_BY_FORWARD;
  if (is_used_in(plan, Phase::kBackward, name)) bits |= MOEJIT_USED_BY_BACKWARD;
  return bits;
}

std::string text_of(const std::vector<std::string>& identity) {
  std::string text;
  for (const std::string& field : identity) text += field + "\n";
  return text;
}

std::vector<std::string> fields_of(const char* identity) {
  std::vector<std::string> fields;
  if (identity == nullptr) return fields;
  std::istringstream lines(identity);
  for (std::string line; std::getline(lines, line);) fields.push_back(line);
  return fields;
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

// Checks a handle of a group, and calls `body` with the group.
template <typename Body>
moejit_error_code with_group(moejit_group* group, const char* function, Body&& body) {
  return guarded(Stage::kLaunch, [&]() -> Result<void> {
    if (group == nullptr) return null_argument(Stage::kLaunch, "group", function);
    return body(*group->group);
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
    constexpr int64_t kDefaultTimeout = 10000;
    auto handle = std::make_unique<moejit_group_layer>();
    MOEJIT_TRY_ASSIGN(handle->plan,
                      plan_group_layer(described, parsed,
                                       {.rank = rank,
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

moejit_error_code moejit_group_adopt(const moejit_group_layer* layer, moejit_device* device,
                                     const moejit_group_member* members, size_t member_count,
                                     moejit_group** group) {
  constexpr const char* kFunction = "moejit_group_adopt";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (group == nullptr) return null_argument(Stage::kLoad, "group", kFunction);
    *group = nullptr;
    if (layer == nullptr) return null_argument(Stage::kLoad, "layer", kFunction);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", kFunction);
    if (members == nullptr) return null_argument(Stage::kLoad, "members", kFunction);
    std::vector<GroupMember> given;
    for (const moejit_group_member& member : std::span(members, member_count))
      given.push_back(
          {.base = member.base, .bytes = member.bytes, .identity = fields_of(member.identity)});
    auto handle = std::make_unique<moejit_group>();
    handle->device = device->device;
    handle->place = device->place;
    MOEJIT_TRY_ASSIGN(handle->group,
                      moejit::runtime::Group::adopt(layer->plan, *device->device, given));
    *group = handle.release();
    return {};
  });
}

void moejit_group_destroy(moejit_group* group) { delete group; }

moejit_error_code moejit_group_status(moejit_group* group, uint32_t* status) {
  return with_group(group, "moejit_group_status", [&](moejit::runtime::Group& of) -> Result<void> {
    if (status == nullptr) return null_argument(Stage::kLaunch, "status", "moejit_group_status");
    MOEJIT_TRY_ASSIGN(*status, of.status());
    return {};
  });
}

moejit_error_code moejit_group_clear_status(moejit_group* group, void* stream) {
  return with_group(group, "moejit_group_clear_status",
                    [&](moejit::runtime::Group& of) { return of.clear_status(stream); });
}

moejit_error_code moejit_group_reset(moejit_group* group) {
  return with_group(group, "moejit_group_reset",
                    [](moejit::runtime::Group& of) { return of.reset(); });
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
        if (mode != MOEJIT_GRADIENT_OVERWRITE && mode != MOEJIT_GRADIENT_ADD)
          return fail(
              Stage::kLaunch, ErrorCode::kInvalidValue,
              fmt::format("mode of {}() is {}, wanted {} or {}", kFunction, static_cast<int>(mode),
                          static_cast<int>(MOEJIT_GRADIENT_OVERWRITE),
                          static_cast<int>(MOEJIT_GRADIENT_ADD)));
        return prepared.backward(
            given.tensors.span(),
            mode == MOEJIT_GRADIENT_ADD ? GradientMode::kAdd : GradientMode::kOverwrite,
            given.memory, given.stream);
      });
}

moejit_error_code moejit_device_open_simulator_group(size_t ranks, int64_t memory_bytes,
                                                     uint64_t seed, moejit_device** devices,
                                                     void** memory) {
  constexpr const char* kFunction = "moejit_device_open_simulator_group";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (devices == nullptr) return null_argument(Stage::kLoad, "devices", kFunction);
    if (memory == nullptr) return null_argument(Stage::kLoad, "memory", kFunction);
    constexpr size_t kMostRanks = 8;
    if (ranks < 1 || ranks > kMostRanks)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("ranks of {}() is {}, wanted 1 to {}", kFunction, ranks, kMostRanks));
    std::fill_n(devices, ranks, nullptr);
    std::fill_n(memory, ranks, nullptr);
    const auto count = static_cast<int32_t>(ranks);
    // An SM may have 2048 threads, whose stacks are two of a process's 65530 mappings each.
    MOEJIT_TRY_ASSIGN(
        std::shared_ptr<moejit::runtime::SimulatorGroup> group,
        moejit::runtime::open_simulator_group(
            count,
            {.seed = seed, .heap_bytes = memory_bytes, .sm_count = std::clamp(8 / count, 1, 4)}));
    std::vector<std::unique_ptr<moejit_device>> handles;
    for (int32_t rank = 0; rank < count; ++rank) {
      auto handle = std::make_unique<moejit_device>();
      handle->device = {group, &group->device(rank)};  // each keeps the whole group
      handle->name = handle->device->name();
      handle->target = to_string(handle->device->target());
      handle->place = {.device_type = kDLCPU, .device_id = 0};
      handles.push_back(std::move(handle));
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      devices[rank] = handles[rank].release();
      memory[rank] = group->heap(static_cast<int32_t>(rank));
    }
    return {};
  });
}
