// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/group_session.h"

#include "runtime/trial/layer_inputs.h"

#include <fmt/core.h>

namespace moejit::trial {

using runtime::HostTensor;
using runtime::TensorMap;

using compiler::GroupPlan;
using compiler::TensorPlan;
using runtime::DeviceMemory;
using runtime::GroupMember;

Result<std::unique_ptr<GroupSession>> GroupSession::create(
    const compiler::Layer& layer, GroupDevices& devices, runtime::Engine& engine,
    std::span<const TensorMap> inputs, int64_t timeout_ms, const compiler::Tuning* tuning) {
  std::unique_ptr<GroupSession> session(new GroupSession(devices));
  std::vector<GroupPlan> plans;
  std::vector<GroupMember> members;
  for (int32_t rank = 0; rank < devices.ranks(); ++rank) {
    MOEJIT_TRY_ASSIGN(
        GroupPlan plan,
        compiler::plan_group_layer(layer, devices.device(rank).target(),
                                   {.tuning = tuning, .rank = rank, .timeout_ms = timeout_ms}));
    members.push_back({.base = devices.memory(rank),
                       .bytes = plan.memory.bytes,
                       .identity = compiler::group_identity(plan)});
    plans.push_back(std::move(plan));
  }
  std::vector<std::unique_ptr<runtime::Transport>> transports;
  if (compiler::uses_collectives(layer)) {
    MOEJIT_TRY_ASSIGN(transports, devices.open_transport());
  }
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const GroupPlan& plan = plans[rank];
    auto group =
        transports.empty()
            ? runtime::Group::adopt(plan, devices.device(static_cast<int32_t>(rank)), members)
            : runtime::Group::open(plan, devices.device(static_cast<int32_t>(rank)),
                                   std::move(transports[rank]));
    if (!group) return tl::make_unexpected(std::move(group).error());
    MOEJIT_TRY(session->add_rank(plan, engine, std::move(*group), inputs[rank]));
  }
  MOEJIT_TRY(devices.synchronize());
  return session;
}

Result<void> GroupSession::add_rank(const GroupPlan& plan, runtime::Engine& engine,
                                    std::unique_ptr<runtime::Group> group,
                                    const TensorMap& inputs) {
  runtime::Device& device = devices_.device(static_cast<int32_t>(plan.rank));
  auto rank = std::make_unique<Rank>(device);
  rank->group = std::move(group);
  MOEJIT_TRY_ASSIGN(rank->layer, runtime::GroupLayer::prepare(plan, *rank->group, engine));
  for (const TensorPlan& tensor : plan.tensors) {
    if (!compiler::is_callers(tensor.role) || tensor.is_optional) continue;
    std::vector<int64_t> shape;
    for (const compiler::Dim& dim : tensor.shape)
      shape.push_back(dim.symbol == "T" ? token_count(inputs) : dim.value);
    const auto content = inputs.find(tensor.name);
    MOEJIT_TRY(rank->tensors.add(tensor.name, tensor.dtype, std::move(shape),
                                 content == inputs.end() ? nullptr : &content->second));
  }
  MOEJIT_TRY_ASSIGN(rank->workspace, DeviceMemory::allocate(device, plan.workspace_bytes));
  MOEJIT_TRY_ASSIGN(rank->saved, DeviceMemory::allocate(device, plan.saved_bytes));
  rank->memory = {.workspace = rank->workspace.address(),
                  .workspace_bytes = plan.workspace_bytes,
                  .saved = rank->saved.address(),
                  .saved_bytes = plan.saved_bytes};
  for (const TensorPlan& tensor : plan.tensors) {
    if (!rank->tensors.has(tensor.name)) continue;
    rank->refs.push_back(rank->tensors.ref(tensor.name));
    if (call_takes(plan, "update_weights", tensor.name)) rank->weights.push_back(rank->refs.back());
  }
  ranks_.push_back(std::move(rank));
  return {};
}

Result<void> GroupSession::update_weights(int32_t rank) {
  return at(rank).layer->update_weights(at(rank).weights, nullptr);
}
Result<void> GroupSession::forward(int32_t rank, runtime::LaunchObserver* observer) {
  return at(rank).layer->forward(at(rank).refs, at(rank).memory, nullptr, observer);
}
Result<void> GroupSession::backward(int32_t rank, compiler::GradientMode mode,
                                    runtime::LaunchObserver* observer) {
  return at(rank).layer->backward(at(rank).refs, mode, at(rank).memory, nullptr, observer);
}

Result<void> GroupSession::update_weights() {
  for (int32_t rank = 0; rank < devices_.ranks(); ++rank) MOEJIT_TRY(update_weights(rank));
  return {};
}
Result<void> GroupSession::forward() {
  for (int32_t rank = 0; rank < devices_.ranks(); ++rank) MOEJIT_TRY(forward(rank));
  return {};
}
Result<void> GroupSession::backward(compiler::GradientMode mode) {
  for (int32_t rank = 0; rank < devices_.ranks(); ++rank) MOEJIT_TRY(backward(rank, mode));
  return {};
}

Result<std::vector<uint32_t>> GroupSession::status() {
  MOEJIT_TRY(devices_.synchronize());
  std::vector<uint32_t> words;
  for (int32_t rank = 0; rank < devices_.ranks(); ++rank) {
    MOEJIT_TRY_ASSIGN(const uint32_t word, group(rank).status());
    words.push_back(word);
  }
  return words;
}

Result<HostTensor> GroupSession::read(int32_t rank, std::string_view name) const {
  return at(rank).tensors.read(name);
}

}  // namespace moejit::trial
