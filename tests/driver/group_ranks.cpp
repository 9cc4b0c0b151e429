// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/group_ranks.h"

#include "compiler/call_dims.h"

namespace moejit::testing {

using compiler::KernelPlan;
using compiler::TensorPlan;

namespace {

Result<void> checked(moejit_error_code code) {
  if (code == MOEJIT_OK) return {};
  return fail(Stage::kLaunch, ErrorCode::kInternal, moejit_last_error()->message);
}

std::string_view name_of(GroupRank::Pass pass) {
  switch (pass) {
    case GroupRank::Pass::kWeights: return "update_weights";
    case GroupRank::Pass::kForward: return "forward";
    case GroupRank::Pass::kBackward: break;
  }
  return "backward";
}

constexpr std::array kPasses = {GroupRank::Pass::kWeights, GroupRank::Pass::kForward,
                                GroupRank::Pass::kBackward};

}  // namespace

Result<void> GroupRank::open(std::string_view json, int32_t rank) {
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, compiler::parse_layer(json, "layer"));
  MOEJIT_TRY_ASSIGN(plan_, compiler::plan_layer(layer, {}, {.rank = rank}));
  MOEJIT_TRY_ASSIGN(device_, runtime::open_cuda_device(rank));
  MOEJIT_TRY(checked(moejit_device_open_cuda(rank, &c_device_)));
  return checked(
      moejit_group_layer_create(json.data(), json.size(), "cuda:sm_90a", rank, nullptr, &layer_));
}

Result<void*> GroupRank::take(int64_t bytes, bool fills_memory) {
  MOEJIT_TRY_ASSIGN(void* const address, device_->allocate(bytes));
  allocated_.push_back(address);
  if (fills_memory) MOEJIT_TRY(device_->fill(address, std::byte{0}, bytes, nullptr));
  return address;
}

// Choice k of token t is expert t + k * E / K, so that a token's experts differ if there are as
// many as choices.
Result<void> GroupRank::choose_experts(void* topk_ids) {
  const compiler::Layer& layer = *plan_.layer;
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < layer.max_tokens; ++token)
    for (int64_t choice = 0; choice < layer.top_k; ++choice)
      ids.push_back(
          static_cast<int32_t>((token + choice * (layer.experts / layer.top_k)) % layer.experts));
  return device_->copy_to_device(topk_ids, ids.data(), std::ssize(ids) * 4);
}

Result<void> GroupRank::allocate(bool fills_memory) {
  MOEJIT_TRY_ASSIGN(group_memory_, take(plan_.group->memory.bytes, false));
  MOEJIT_TRY_ASSIGN(workspace_, take(plan_.workspace_bytes, fills_memory));
  MOEJIT_TRY_ASSIGN(saved_, take(plan_.saved_bytes, fills_memory));
  moejit_plan_info info{};
  info.struct_size = sizeof(info);
  MOEJIT_TRY(checked(moejit_plan_get_info(layer_, &info)));
  moejit_device_info about{};
  about.struct_size = sizeof(about);
  MOEJIT_TRY(checked(moejit_device_get_info(c_device_, &about)));
  for (std::size_t i = 0; i < info.tensor_count; ++i) {
    moejit_tensor_info tensor{};
    tensor.struct_size = sizeof(tensor);
    MOEJIT_TRY(checked(moejit_plan_get_tensor(layer_, i, &tensor)));
    if (tensor.offset >= 0) continue;
    std::vector<int64_t>& shape = shapes_[tensor.name];
    shape.assign(tensor.shape, tensor.shape + tensor.ndim);
    DLTensor& dl = tensors_[tensor.name];
    MOEJIT_TRY_ASSIGN(dl.data, take(tensor.bytes, fills_memory));
    dl.device = about.dl_device;
    dl.ndim = tensor.ndim;
    dl.dtype = tensor.dtype;
    dl.shape = shape.data();
    if (std::string_view(tensor.name) == "topk_ids") MOEJIT_TRY(choose_experts(dl.data));
  }
  for (const Pass pass : kPasses) make_call(pass);
  return device_->synchronize(nullptr);
}

void GroupRank::make_call(Pass pass) {
  Call& call = calls_[static_cast<std::size_t>(pass)];
  for (auto& [name, dl] : tensors_) {
    if (call_takes(plan_, name_of(pass), name)) call.tensors.push_back({name.c_str(), &dl});
  }
  call.record.struct_size = sizeof(call.record);
  call.record.tensors = call.tensors.data();
  call.record.tensor_count = call.tensors.size();
  call.record.workspace = workspace_;
  call.record.workspace_bytes = plan_.workspace_bytes;
  call.record.saved = saved_;
  call.record.saved_bytes = plan_.saved_bytes;
}

Result<void> GroupRank::join(const std::vector<std::unique_ptr<GroupRank>>& all,
                             moejit_engine* engine) {
  std::vector<moejit_group_member> members;
  for (const auto& rank : all) {
    if (rank.get() != this) MOEJIT_TRY(device_->reach(*rank->device_));
    members.push_back({rank->group_memory_, plan_.group->memory.bytes, nullptr});
  }
  MOEJIT_TRY(
      checked(moejit_group_adopt(layer_, c_device_, members.data(), members.size(), &group_)));
  return checked(moejit_plan_prepare_in_group(layer_, engine, group_));
}

GroupRank::~GroupRank() {
  moejit_plan_destroy(layer_);
  moejit_group_destroy(group_);
  moejit_device_destroy(c_device_);
  for (void* const address : allocated_) static_cast<void>(device_->release(address));
}

void GroupRank::set_tokens(int64_t tokens) {
  for (auto& [name, shape] : shapes_) {
    const TensorPlan* const tensor = find_tensor(plan_, name);
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (call_dim(tensor->shape[i]) == compiler::CallDim::kTokens) shape[i] = tokens;
  }
}

moejit_error_code GroupRank::call(Pass pass) {
  const moejit_call* const record = &calls_[static_cast<std::size_t>(pass)].record;
  switch (pass) {
    case Pass::kWeights: return moejit_layer_update_weights(layer_, record);
    case Pass::kForward: return moejit_layer_forward(layer_, record);
    case Pass::kBackward: break;
  }
  return moejit_layer_backward(layer_, MOEJIT_GRADIENT_OVERWRITE, record);
}

std::vector<const KernelPlan*> GroupRank::kernels(Pass pass) const {
  std::vector<const KernelPlan*> kernels;
  for (const compiler::CallStep& step : plan_.calls[*find_call(plan_, name_of(pass))].steps)
    if (!step.is_collective) kernels.push_back(&plan_.kernels[step.index]);
  return kernels;
}

Result<std::vector<std::unique_ptr<GroupRank>>> open_group_ranks(std::string_view json,
                                                                 moejit_engine* engine,
                                                                 bool fills_memory) {
  std::vector<std::unique_ptr<GroupRank>> ranks;
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, compiler::parse_layer(json, "layer"));
  for (int32_t rank = 0; rank < layer.expert_parallel.ranks; ++rank) {
    ranks.push_back(std::unique_ptr<GroupRank>(new GroupRank));
    MOEJIT_TRY(ranks.back()->open(json, rank));
    MOEJIT_TRY(ranks.back()->allocate(fills_memory));
  }
  for (const auto& rank : ranks) MOEJIT_TRY(rank->join(ranks, engine));
  return ranks;
}

}  // namespace moejit::testing
