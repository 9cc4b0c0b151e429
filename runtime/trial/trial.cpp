// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/trial.h"

#include "compiler/call_order.h"
#include "compiler/group_plan.h"
#include "runtime/trial/device_tensors.h"
#include "runtime/trial/layer_inputs.h"

#include <algorithm>
#include <optional>

namespace moejit::trial {

using compiler::Plan;
using compiler::TensorPlan;
using compiler::TensorRole;
using runtime::HostTensor;
using runtime::TensorMap;

namespace {

const HostTensor* find(const TensorMap& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

}  // namespace

bool is_result(const TensorPlan& tensor) {
  return (tensor.role == TensorRole::kOutput || tensor.role == TensorRole::kState) &&
         tensor.name != "status";
}

Result<std::vector<Plan>> plan_ranks(const compiler::Layer& layer, const compiler::Target& target,
                                     compiler::PlanOptions options) {
  std::vector<Plan> plans;
  for (options.rank = 0; options.rank < layer.expert_parallel.ranks; ++options.rank) {
    MOEJIT_TRY_ASSIGN(Plan plan, compiler::plan_layer(layer, target, options));
    plans.push_back(std::move(plan));
  }
  return plans;
}

namespace {

// Allocates and uploads the tensors of a layer.
Result<void> add_layer(TrialRank& rank, const TensorMap& inputs) {
  const Plan& plan = rank.plan();
  for (const TensorPlan& tensor : plan.tensors) {
    const HostTensor* content = find(inputs, tensor.name);
    if (!compiler::is_callers(tensor.role)) continue;
    if (tensor.is_optional && content == nullptr) continue;
    // If weights came quantized, no kernel reads the bf16 weights; biases are still read.
    if (tensor.role == TensorRole::kWeight && has_quantized_weights(inputs) &&
        !call_takes(plan, "forward", tensor.name))
      continue;
    std::optional<HostTensor> first;
    if (content == nullptr && tensor.role == TensorRole::kState)
      content = &first.emplace(first_state(tensor));
    MOEJIT_TRY(rank.add(tensor, content));
    if (begins_as_zeros(tensor) || tensor.name == "status")
      MOEJIT_TRY(rank.device().fill(rank.tensors().address_of(tensor.name), std::byte{0},
                                    tensor.bytes, nullptr));
  }
  return {};
}

// Allocates and uploads the tensors of an operation that has no list.
Result<void> add_operation(TrialRank& rank, const TensorMap& inputs, bool tells_clock) {
  for (const TensorPlan& tensor : rank.plan().tensors) {
    const HostTensor* const content = find(inputs, tensor.name);
    if (content == nullptr && tensor.role != TensorRole::kOutput) continue;  // an optional input
    if (tensor.name != "elapsed" || tells_clock) MOEJIT_TRY(rank.add(tensor, content));
  }
  return {};
}

}  // namespace

Result<void> Trial::add(std::unique_ptr<runtime::PreparedPlan> prepared, runtime::Device& device,
                        const CallInputs& inputs, bool tells_clock) {
  const Plan& plan = prepared->plan();
  compiler::MemorySizes sizes{.workspace_bytes = plan.workspace_bytes,
                              .saved_bytes = plan.saved_bytes,
                              .deferred_bytes = plan.deferred_bytes};
  if (plan.layer && !plan.group) {
    MOEJIT_TRY_ASSIGN(sizes, prepared->layout().sizes(inputs.dims.tokens));
  }
  MOEJIT_TRY_ASSIGN(auto rank, TrialRank::create(std::move(prepared), device, inputs.dims));
  if (plan.layer) {
    MOEJIT_TRY(add_layer(*rank, inputs.tensors));
  } else if (const auto list = listed_tensors(plan)) {
    MOEJIT_TRY_ASSIGN(listed_, add_list(*list, inputs.tensors, rank->tensors()));
  } else {
    MOEJIT_TRY(add_operation(*rank, inputs.tensors, tells_clock));
  }
  MOEJIT_TRY(rank->finish(sizes));
  came_quantized_ = has_quantized_weights(inputs.tensors);
  ranks_.push_back(std::move(rank));
  return {};
}

Result<void> Trial::add_group(std::span<const Plan> plans, runtime::Engine& engine,
                              Devices& devices, std::span<const CallInputs> inputs) {
  devices_ = &devices;
  std::vector<runtime::GroupMember> members;
  for (const Plan& plan : plans)
    members.push_back({.base = devices.memory(static_cast<int32_t>(plan.group->rank)),
                       .bytes = plan.group->memory.bytes,
                       .identity = compiler::group_identity(plan)});
  std::vector<std::unique_ptr<runtime::Transport>> transports;
  if (compiler::uses_collectives(*plans.front().layer)) {
    MOEJIT_TRY_ASSIGN(transports, devices.open_transport());
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    runtime::Device& device = devices.device(static_cast<int32_t>(i));
    auto group = transports.empty() ? runtime::Group::adopt(plan, device, members)
                                    : runtime::Group::open(plan, device, std::move(transports[i]));
    if (!group) return tl::make_unexpected(std::move(group).error());
    groups_.push_back(std::move(*group));
    MOEJIT_TRY_ASSIGN(auto prepared, runtime::PreparedPlan::prepare(plan, engine, *groups_.back()));
    MOEJIT_TRY(add(std::move(prepared), device, inputs[i], false));
  }
  return devices.synchronize();
}

Result<std::unique_ptr<Trial>> Trial::create(std::span<const Plan> plans, runtime::Engine& engine,
                                             Devices& devices, std::span<const CallInputs> inputs,
                                             bool tells_clock) {
  if (!plans.front().group)
    return create(plans.front(), engine, devices.device(0), inputs.front(), tells_clock);
  std::unique_ptr<Trial> trial(new Trial);
  MOEJIT_TRY(trial->add_group(plans, engine, devices, inputs));
  return trial;
}

Result<std::unique_ptr<Trial>> Trial::create(const Plan& plan, runtime::Engine& engine,
                                             runtime::Device& device, const CallInputs& inputs,
                                             bool tells_clock) {
  std::unique_ptr<Trial> trial(new Trial);
  MOEJIT_TRY_ASSIGN(auto prepared, runtime::PreparedPlan::prepare(plan, engine, device));
  MOEJIT_TRY(trial->add(std::move(prepared), device, inputs, tells_clock));
  return trial;
}

Result<std::unique_ptr<Trial>> Trial::create(const Plan& plan, runtime::Engine& engine,
                                             runtime::Device& device,
                                             std::vector<runtime::NamedMemory> tensors) {
  std::unique_ptr<Trial> trial(new Trial);
  MOEJIT_TRY_ASSIGN(auto prepared, runtime::PreparedPlan::prepare(plan, engine, device));
  MOEJIT_TRY_ASSIGN(auto rank, TrialRank::create(std::move(prepared), device, {}));
  for (runtime::NamedMemory& memory : tensors)
    rank->tensors().put(*compiler::find_tensor(plan, memory.name), std::move(memory.memory));
  MOEJIT_TRY(rank->finish({.workspace_bytes = plan.workspace_bytes}));
  trial->ranks_.push_back(std::move(rank));
  return trial;
}

Result<void> Trial::call(std::string_view name, runtime::LaunchObserver* observer) {
  for (int32_t rank = 0; rank < ranks(); ++rank) MOEJIT_TRY(call_on(rank, name, observer));
  return {};
}

Result<void> Trial::call_on(int32_t rank, std::string_view name,
                            runtime::LaunchObserver* observer) {
  MOEJIT_TRY_ASSIGN(const std::size_t index, compiler::find_call(plan(rank), name));
  if (std::ranges::find(made_, index) == made_.end()) made_.push_back(index);
  if (name == "update_weights" && came_quantized_) return {};
  const TrialRank& one = at(rank);
  if (void* const status = one.tensors().address_of("status");
      name == "forward" && status != nullptr)
    MOEJIT_TRY(one.device().fill(status, std::byte{0}, sizeof(uint32_t), nullptr));
  return one.prepared().call(index, one.refs()[index], one.memory(), nullptr, observer);
}

Result<std::unique_ptr<runtime::Recording>> Trial::record(std::string_view name, int32_t times) {
  MOEJIT_TRY_ASSIGN(const std::size_t index, compiler::find_call(plan(), name));
  const TrialRank& one = at(0);
  return one.device().record([&](runtime::Stream stream) -> Result<void> {
    for (int32_t i = 0; i < times; ++i)
      MOEJIT_TRY(one.prepared().call(index, one.refs()[index], one.memory(), stream));
    return {};
  });
}

bool Trial::was_written(std::string_view tensor, int32_t rank) const {
  return std::ranges::any_of(made_, [&](std::size_t call) {
    return compiler::writes(plan(rank), plan(rank).calls[call], tensor);
  });
}

Result<std::vector<uint32_t>> Trial::status() {
  MOEJIT_TRY(devices_ != nullptr ? devices_->synchronize() : at(0).device().synchronize(nullptr));
  std::vector<uint32_t> words;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    if (devices_ != nullptr) {
      MOEJIT_TRY_ASSIGN(const uint32_t word, group(rank).status());
      words.push_back(word);
    } else if (tensors(rank).has("status")) {
      MOEJIT_TRY_ASSIGN(const HostTensor word, tensors(rank).read("status"));
      words.push_back(runtime::elements<uint32_t>(word).front());
    } else {
      words.push_back(0);
    }
  }
  return words;
}

Result<TensorMap> Trial::results(int32_t rank, bool with_intermediates) const {
  TensorMap results;
  for (const TensorPlan& tensor : plan(rank).tensors) {
    if (compiler::is_callers(tensor.role) && !tensors(rank).has(tensor.name)) continue;
    const bool is_written = tensor.role != TensorRole::kInput &&
                            tensor.role != TensorRole::kWeight && tensor.role != TensorRole::kGroup;
    const bool is_asked_for =
        plan(rank).operation ? tensor.role == TensorRole::kOutput
                             : is_result(tensor) || (with_intermediates && tensor.name != "status");
    if (!is_written || !is_asked_for) continue;
    const bool is_known = plan(rank).operation || tensor.role == TensorRole::kState;
    if (!is_known && !was_written(tensor.name, rank)) continue;
    MOEJIT_TRY_ASSIGN(results[tensor.name], read(tensor, rank));
  }
  for (const std::string& name : listed_) {
    MOEJIT_TRY_ASSIGN(results[name], tensors(rank).read(name));
  }
  return results;
}

}  // namespace moejit::trial
