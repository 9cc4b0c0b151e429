// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/process_rank.h"

#include "compiler/group_plan.h"
#include "compiler/support/file.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/random_layer_inputs.h"
#include "tests/gpu/group_case.h"
#include "tests/support/test_engine.h"

#include <chrono>
#include <cstring>
#include <fmt/core.h>
#include <numeric>

namespace moejit::testing {
namespace {

using compiler::TensorPlan;
using runtime::DeviceMemory;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

// As GroupCase makes them.
runtime::TensorMap inputs_of(const ProcessLayer& of, int32_t rank) {
  constexpr uint64_t kSeed = 1;
  const compiler::Layer one = compiler::layer_of_one_rank(of.layer);
  const int64_t all = std::accumulate(of.tokens.begin(), of.tokens.end(), int64_t{0});
  runtime::TensorMap inputs = trial::random_tokens(one, all, {kSeed});
  inputs.merge(trial::random_weights_of(one, one.local_experts, kSeed));
  if (has_backward(of.layer)) inputs.merge(trial::random_gradient(one, all, kSeed));
  return trial::split_inputs(of.layer, inputs, of.tokens)[static_cast<std::size_t>(rank)];
}

}  // namespace

ProcessLayer process_layer(int32_t ranks, bool is_large) {
  ProcessLayer of{.layer = group_layer(ranks)};
  for (int64_t rank = 0; rank < ranks; ++rank) of.tokens.push_back(12 - rank * 7 % 12);
  if (is_large) {
    of.layer.top_k = 8;
    of.layer.experts = 16;
    of.layer.hidden = 4096;
    of.layer.intermediate = 128;
    of.layer.max_tokens = 4096;
    of.layer.passes = {compiler::Pass::kForward};
    of.tokens.assign(of.tokens.size(), 4096);
  }
  of.layer = completed(of.layer);
  return of;
}

Result<std::unique_ptr<ProcessRank>> ProcessRank::open_device(int32_t rank) {
  MOEJIT_TRY_ASSIGN(auto device, runtime::open_cuda_device(rank));
  return std::unique_ptr<ProcessRank>(new ProcessRank(std::move(device), rank));
}

Result<void> ProcessRank::open_group(const ProcessLayer& of, const std::string& path,
                                     int64_t timeout_ms) {
  path_ = path;
  MOEJIT_TRY_ASSIGN(
      const compiler::Plan plan,
      compiler::plan_layer(of.layer, device_->target(), {.rank = rank_, .timeout_ms = timeout_ms}));
  const auto began = Clock::now();
  MOEJIT_TRY_ASSIGN(group_, runtime::Group::open(plan, *device_, {.path = path}));
  open_ms_ = ms_since(began);
  MOEJIT_TRY_ASSIGN(layer_, runtime::PreparedPlan::prepare(plan, test_engine(), *group_));
  MOEJIT_TRY(add_tensors(inputs_of(of, rank_)));
  MOEJIT_TRY(layer_->call("update_weights", weights_, {}, nullptr));
  return device_->synchronize(nullptr);
}

Result<void> ProcessRank::add_tensors(const runtime::TensorMap& inputs) {
  const compiler::Plan& plan = layer_->plan();
  for (const TensorPlan& tensor : plan.tensors) {
    if (!compiler::is_callers(tensor.role) || tensor.is_optional) continue;
    std::vector<int64_t> shape;
    for (const compiler::Dim& dim : tensor.shape)
      shape.push_back(dim.symbol == "T" ? trial::token_count(inputs) : dim.value);
    const auto content = inputs.find(tensor.name);
    MOEJIT_TRY(tensors_.add(tensor.name, tensor.dtype, std::move(shape),
                            content == inputs.end() ? nullptr : &content->second));
    refs_.push_back(tensors_.ref(tensor.name));
    if (call_takes(plan, "update_weights", tensor.name)) weights_.push_back(refs_.back());
  }
  MOEJIT_TRY_ASSIGN(workspace_, DeviceMemory::allocate(*device_, plan.workspace_bytes));
  MOEJIT_TRY_ASSIGN(saved_, DeviceMemory::allocate(*device_, plan.saved_bytes));
  memory_ = {.workspace = workspace_.address(),
             .workspace_bytes = plan.workspace_bytes,
             .saved = saved_.address(),
             .saved_bytes = plan.saved_bytes};
  return {};
}

Result<void> ProcessRank::launch() {
  MOEJIT_TRY(layer_->call("forward", refs_, memory_, nullptr));
  if (!has_backward(*layer_->plan().layer)) return {};
  return layer_->call("backward", refs_, memory_, nullptr);
}

Result<std::string> ProcessRank::run() {
  const auto began = Clock::now();
  MOEJIT_TRY(launch());
  MOEJIT_TRY(device_->synchronize(nullptr));
  const double ms = ms_since(began);
  MOEJIT_TRY_ASSIGN(const uint32_t status, group_->status());
  is_silent_ = status != 0;
  return fmt::format("status {} {:.1f}", status, ms);
}

Result<std::string> ProcessRank::save() const {
  for (const TensorPlan& tensor : layer_->plan().tensors) {
    if (tensor.role != compiler::TensorRole::kOutput || !tensors_.has(tensor.name)) continue;
    MOEJIT_TRY_ASSIGN(const runtime::HostTensor host, tensors_.read(tensor.name));
    MOEJIT_TRY(write_file(fmt::format("{}/{}.{}", folder_, group_->rank(), tensor.name),
                          std::span<const std::byte>(host.bytes)));
  }
  return "saved";
}

// Memory is had, filled, copied and given back, and kernels run: those that quantize the weights.
Result<std::string> ProcessRank::check_context() {
  constexpr int64_t kBytes = 1 << 20;
  MOEJIT_TRY_ASSIGN(const DeviceMemory memory, DeviceMemory::allocate(*device_, kBytes));
  MOEJIT_TRY(device_->fill(memory.address(), std::byte{7}, kBytes, nullptr));
  std::vector<std::byte> bytes(kBytes);
  MOEJIT_TRY(device_->copy_to_host(bytes.data(), memory.address(), kBytes));
  for (const std::byte byte : bytes)
    if (byte != std::byte{7})
      return fail(Stage::kLaunch, ErrorCode::kCheckFailed, "memory holds something else");
  MOEJIT_TRY(layer_->call("update_weights", weights_, {}, nullptr));
  MOEJIT_TRY(device_->synchronize(nullptr));
  return "alive";
}

Result<std::string> ProcessRank::answer(const std::string& line) {
  if (line == "run") return run();
  if (line == "loop") {
    for (;;) {
      MOEJIT_TRY_ASSIGN(std::string said, run());
      if (is_silent_) return said;
    }
  }
  if (line == "flood") {
    for (;;) {
      for (int call = 0; call < 16; ++call) MOEJIT_TRY(launch());
      MOEJIT_TRY(device_->synchronize(nullptr));
    }
  }
  if (line == "save") return save();
  if (line == "alive") return check_context();
  if (line == "reset") {
    MOEJIT_TRY(group_->reset());
    return "done";
  }
  if (line == "reopen") {
    MOEJIT_TRY(group_->reopen({.path = path_}));
    return "done";
  }
  return fail(Stage::kCommand, ErrorCode::kUsage, "unknown line " + line);
}

std::string ProcessRank::obey(const std::string& line) {
  const Result<std::string> said = answer(line);
  return said ? *said
              : fmt::format("failed {} {}", to_string(said.error().code), said.error().message);
}

}  // namespace moejit::testing
