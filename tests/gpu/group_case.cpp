// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/group_case.h"

#include "compiler/group_plan.h"
#include "compiler/support/file.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "tests/support/kernels_ahead.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/tested_target.h"

#include <fmt/core.h>
#include <numeric>

namespace moejit::testing {

using compiler::Layer;
using compiler::TensorPlan;
using compiler::TensorRole;

Layer group_layer(int32_t ranks) {
  Layer layer{.name = "group",
              .experts = 8,
              .top_k = 2,
              .hidden = 144,
              .intermediate = 80,
              .splits_alignment = 16,
              .max_tokens = 12,
              .dispatch = compiler::Dispatch::kFp8,
              .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  layer.expert_parallel.ranks = ranks;
  return layer;
}

namespace {

// Has the kernels of all ranks compiled together, with those of one rank that has all tokens.
bool note_kernels(const std::vector<compiler::Plan>& plans, const Layer& layer) {
  bool are_there = true;
  for (const compiler::Plan& plan : plans)
    are_there = note_kernels_of(plan).has_value() && are_there;
  const auto one = compiler::plan_layer(compiler::layer_of_one_rank(layer), plans.front().target,
                                        {.keep_intermediates = true});
  return one && note_kernels_of(*one) && are_there;
}

}  // namespace

Layer group_layer_of_many(int32_t ranks) {
  Layer layer = group_layer(ranks);
  layer.experts = 16;
  layer.top_k = 5;
  return layer;
}

Layer completed(Layer layer) {
  layer.local_experts = layer.experts / layer.expert_parallel.ranks;
  if (layer.max_permuted_rows == 0) layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

Layer with_recipe(Layer layer, const compiler::Recipe& recipe) {
  const bool has_groups = recipe.tokens.scale == compiler::ScaleOf::k1x32;
  layer.recipe = recipe;
  layer.dispatch = compiler::Dispatch::kNone;
  layer.splits_alignment = 64;
  layer.experts = 4;
  layer.hidden = has_groups ? 288 : 272;
  layer.intermediate = has_groups ? 160 : 144;
  layer.max_tokens = 80 / layer.expert_parallel.ranks;
  return layer;
}

std::unique_ptr<GroupCase> GroupCase::open(const Layer& layer, std::vector<int64_t> tokens,
                                           std::string& why_not, uint64_t seed,
                                           const SetIds& set_ids, int64_t timeout_ms) {
  std::unique_ptr<GroupCase> made(new GroupCase);
  made->layer_ = layer;
  const auto plan = compiler::plan_layer(layer, tested_plan_target());
  EXPECT_TRUE(succeeded(plan));
  if (!plan) return nullptr;
  auto devices = trial::Devices::open(tested_target_name(), layer.expert_parallel.ranks,
                                      plan->group->memory.bytes, seed);
  if (!devices) {
    why_not = devices.error().message;
    return nullptr;
  }
  made->devices_ = std::move(*devices);
  const Layer one = compiler::layer_of_one_rank(layer);
  const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  made->inputs_ = trial::random_tokens(one, all, {seed});
  made->inputs_.merge(trial::random_weights_of(one, held_experts(one), seed));
  if (has_backward(layer)) made->inputs_.merge(trial::random_gradient(one, all, seed));
  if (set_ids) {
    std::vector<int64_t> ids(static_cast<std::size_t>(all * layer.top_k));
    set_ids(ids);
    runtime::HostTensor& tensor = made->inputs_["topk_ids"];
    tensor = trial::make_topk_ids(tensor.dtype, tensor.shape, ids);
  }
  made->tokens_ = std::move(tokens);
  std::vector<trial::CallInputs> of_ranks;
  for (auto& rank : trial::split_inputs(layer, made->inputs_, made->tokens_))
    of_ranks.push_back(trial::call_of(std::move(rank)));
  const auto plans =
      trial::plan_ranks(layer, made->devices_->device(0).target(), {.timeout_ms = timeout_ms});
  EXPECT_TRUE(succeeded(plans));
  if (!plans || !note_kernels(*plans, layer)) return nullptr;
  auto session = trial::Trial::create(*plans, test_engine(), *made->devices_, of_ranks);
  EXPECT_TRUE(succeeded(session));
  if (!session) return nullptr;
  made->session_ = std::move(*session);
  EXPECT_TRUE(succeeded(made->session_->call("update_weights")));
  return made;
}

std::vector<uint32_t> GroupCase::run() {
  EXPECT_TRUE(succeeded(session_->call("forward")));
  if (has_backward(layer_)) {
    EXPECT_TRUE(succeeded(session_->call("backward")));
  }
  const auto status = session_->status();
  EXPECT_TRUE(succeeded(status));
  return status.value_or(std::vector<uint32_t>{});
}

std::vector<runtime::TensorMap> GroupCase::results() {
  std::vector<runtime::TensorMap> results;
  for (int32_t rank = 0; rank < devices_->ranks(); ++rank) {
    runtime::TensorMap& own = results.emplace_back();
    for (const TensorPlan& tensor : session_->plan(rank).tensors) {
      if (tensor.role != TensorRole::kOutput) continue;
      auto host = session_->read(tensor, rank);
      EXPECT_TRUE(succeeded(host));
      if (host) own.emplace(tensor.name, std::move(*host));
    }
  }
  return results;
}

std::size_t GroupCase::results_of_rank() const {
  const bool has_gate =
      layer_.shared.gate && computes(without_router(layer_), compiler::Gradient::kDprobs);
  return 1 + gradients_of(layer_).size() + (has_gate ? 1 : 0);
}

void GroupCase::expect_files(const std::filesystem::path& folder) {
  const std::vector<runtime::TensorMap> of_ranks = results();
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    EXPECT_EQ(of_ranks[rank].size(), results_of_rank());
    for (const auto& [name, host] : of_ranks[rank]) {
      const auto bytes = read_file((folder / fmt::format("{}.{}", rank, name)).string());
      ASSERT_TRUE(succeeded(bytes));
      EXPECT_TRUE(*bytes == host.bytes) << name << " of rank " << rank;
    }
  }
}

const runtime::TensorMap& GroupCase::one_rank() {
  if (!one_rank_.empty()) return one_rank_;
  const auto devices = trial::Devices::open_one(tested_target_name(), 0, "");
  EXPECT_TRUE(succeeded(devices));
  runtime::Device& device = (*devices)->device(0);
  const auto plan = compiler::plan_layer(compiler::layer_of_one_rank(layer_), device.target(),
                                         {.keep_intermediates = true});
  EXPECT_TRUE(succeeded(plan));
  auto session = trial::Trial::create(*plan, test_engine(), device, trial::call_of(inputs_));
  EXPECT_TRUE(succeeded(session));
  EXPECT_TRUE(succeeded((*session)->call("update_weights")));
  EXPECT_TRUE(succeeded((*session)->call("forward")));
  if (has_backward(layer_)) {
    EXPECT_TRUE(succeeded((*session)->call("backward")));
  }
  for (const TensorPlan& tensor : plan->tensors) {
    if (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight) continue;
    auto host = (*session)->read(tensor);
    EXPECT_TRUE(succeeded(host)) << tensor.name;
    if (host) one_rank_.emplace(tensor.name, std::move(*host));
  }
  return one_rank_;
}

void GroupCase::expect_bits_of_one_rank() {
  const std::vector<runtime::TensorMap> of_ranks = results();
  const runtime::TensorMap& of_one = one_rank();
  if (::testing::Test::HasFailure()) return;  // results are missing
  const auto checks =
      check::check_group(layer_, {.inputs = inputs_, .results = of_one}, of_ranks, tokens_);
  const std::size_t least = tokens_.size() * results_of_rank();
  EXPECT_TRUE(layer_.router ? checks.size() > least : checks.size() == least) << checks.size();
  for (const check::TensorCheck& check : checks)
    EXPECT_TRUE(check.has_passed) << check.tensor << ": " << check.message;
}

}  // namespace moejit::testing
