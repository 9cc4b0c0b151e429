// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/nccl_rank.h"

#include "compiler/group_plan.h"
#include "compiler/support/file.h"
#include "runtime/nccl_transport.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/random_layer_inputs.h"
#include "tests/gpu/group_case.h"
#include "tests/support/test_engine.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fmt/core.h>
#include <numeric>
#include <sstream>
#include <thread>

namespace moejit::testing {
namespace {

using compiler::TensorPlan;
using runtime::DeviceMemory;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// As GroupCase makes them.
runtime::TensorMap inputs_of(const NcclCase& of, int32_t rank, uint64_t seed) {
  const compiler::Layer one = compiler::layer_of_one_rank(of.layer);
  const int64_t all = std::accumulate(of.tokens.begin(), of.tokens.end(), int64_t{0});
  runtime::TensorMap inputs = trial::random_tokens(one, all, {seed});
  inputs.merge(trial::random_weights_of(one, one.local_experts, seed));
  inputs.merge(trial::random_gradient(one, all, seed));
  return trial::split_inputs(of.layer, inputs, of.tokens)[static_cast<std::size_t>(rank)];
}

// Rank 0 makes the id, and the file is the means by which it gets to the other.
Result<runtime::NcclId> exchange_id(int32_t rank, const std::string& path, int64_t deadline_ms) {
  if (rank == 0) {
    MOEJIT_TRY_ASSIGN(const runtime::NcclId made, runtime::make_nccl_id());
    MOEJIT_TRY(write_file(path + ".new", std::span<const std::byte>(made)));
    std::filesystem::rename(path + ".new", path);
    return made;
  }
  const auto until = Clock::now() + std::chrono::milliseconds(deadline_ms);
  while (!std::filesystem::exists(path) && Clock::now() < until) std::this_thread::sleep_for(5ms);
  MOEJIT_TRY_ASSIGN(const auto bytes, read_file(path));
  runtime::NcclId id;
  if (bytes.size() != id.size())
    return fail(Stage::kFile, ErrorCode::kInvalidFile, "no id of NCCL");
  std::memcpy(id.data(), bytes.data(), id.size());
  return id;
}

Result<void> driver(CUresult result, const char* call, const runtime::DriverApi& api) {
  if (result == CUDA_SUCCESS) return {};
  return tl::make_unexpected(runtime::driver_error(api, Stage::kLaunch, call, result));
}

}  // namespace

NcclCase nccl_case(const std::string& name) {
  NcclCase of{.layer = group_layer(2), .tokens = {12, 5}};
  of.layer.expert_parallel.transport = compiler::Transport::kNccl;
  of.layer.top_k = 3;
  if (name == "rows") of.layer.expert_parallel.combine = compiler::Combine::kRows;
  if (name == "empty") of.tokens = {9, 0};
  if (name == "other") of.layer.hidden = 160;
  if (name == "bf16") {
    of.layer.recipe = compiler::Recipe::kBf16;
    of.layer.dispatch = compiler::Dispatch::kNone;
    of.layer.splits_alignment = 64;  // as backward wants it on a GPU
    of.layer.hidden = 160;
    of.layer.max_tokens = 2048;
    of.tokens = {2048, 1500};
  }
  of.layer = completed(of.layer);
  return of;
}

Result<std::unique_ptr<NcclRank>> NcclRank::open_device(int32_t rank) {
  MOEJIT_TRY_ASSIGN(auto device, runtime::open_cuda_device(rank));
  std::unique_ptr<NcclRank> opened(new NcclRank(std::move(device), rank));
  MOEJIT_TRY_ASSIGN(opened->api_, runtime::driver_api());
  MOEJIT_TRY_ASSIGN(opened->context_, runtime::Context::adopt(*opened->api_, rank));
  opened->current_.emplace(*opened->context_);
  MOEJIT_TRY(driver(opened->api_->stream_create(&opened->stream_, CU_STREAM_NON_BLOCKING),
                    "cuStreamCreate", *opened->api_));
  return opened;
}

NcclRank::~NcclRank() {
  if (graph_ != nullptr) api_->graph_exec_destroy(graph_);
  layer_.reset();
  group_.reset();
  if (stream_ != nullptr) api_->stream_destroy(stream_);
}

Result<void> NcclRank::open_group(const NcclCase& of, const std::string& id_path,
                                  int64_t deadline_ms) {
  of_ = of;
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan,
                    compiler::plan_layer(of.layer, device_->target(), {.rank = rank_}));
  MOEJIT_TRY_ASSIGN(const runtime::NcclId id, exchange_id(rank_, id_path, deadline_ms));
  MOEJIT_TRY_ASSIGN(
      auto transport,
      runtime::open_nccl_transport(
          *device_, {.id = id, .rank = rank_, .ranks = 2, .deadline_ms = deadline_ms}));
  MOEJIT_TRY_ASSIGN(group_, runtime::Group::open(plan, *device_, std::move(transport)));
  MOEJIT_TRY_ASSIGN(layer_, runtime::PreparedPlan::prepare(plan, test_engine(), *group_));
  const runtime::TensorMap inputs = inputs_of(of_, rank_, 1);
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
  return device_->synchronize(nullptr);
}

Result<void> NcclRank::set_inputs(uint64_t seed) {
  for (const auto& [name, host] : inputs_of(of_, rank_, seed))
    if (tensors_.has(name))
      MOEJIT_TRY(device_->copy_to_device(tensors_.ref(name).data, host.bytes.data(),
                                         static_cast<int64_t>(host.bytes.size())));
  return layer_->call("update_weights", weights_, {}, stream_);
}

Result<void> NcclRank::launch() {
  MOEJIT_TRY(layer_->call("forward", refs_, memory_, stream_));
  return layer_->call("backward", refs_, memory_, stream_);
}

Result<std::string> NcclRank::wait() {
  MOEJIT_TRY(device_->synchronize(stream_));
  MOEJIT_TRY_ASSIGN(const uint32_t status, group_->status());
  return fmt::format("status {}", status);
}

Result<void> NcclRank::record() {
  MOEJIT_TRY(driver(api_->stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                    "cuStreamBeginCapture", *api_));
  const Result<void> launched = launch();
  CUgraph recorded = nullptr;
  const CUresult ended = api_->stream_end_capture(stream_, &recorded);
  MOEJIT_TRY(launched);
  MOEJIT_TRY(driver(ended, "cuStreamEndCapture", *api_));
  MOEJIT_TRY(driver(api_->graph_instantiate(&graph_, recorded, 0), "cuGraphInstantiate", *api_));
  return driver(api_->graph_destroy(recorded), "cuGraphDestroy", *api_);
}

Result<std::string> NcclRank::save() const {
  for (const TensorPlan& tensor : layer_->plan().tensors) {
    if (tensor.role != compiler::TensorRole::kOutput || !tensors_.has(tensor.name)) continue;
    MOEJIT_TRY_ASSIGN(const runtime::HostTensor host, tensors_.read(tensor.name));
    MOEJIT_TRY(write_file(fmt::format("{}/{}.{}", folder_, rank_, tensor.name),
                          std::span<const std::byte>(host.bytes)));
  }
  return "saved";
}

Result<std::string> NcclRank::run_alone() {
  const auto began = Clock::now();
  if (graph_ == nullptr)
    MOEJIT_TRY(layer_->call("forward", refs_, memory_, stream_));
  else
    MOEJIT_TRY(driver(api_->graph_launch(graph_, stream_), "cuGraphLaunch", *api_));
  std::jthread ends([this] {
    std::this_thread::sleep_for(500ms);
    group_->abort();  // which needs no context
  });
  MOEJIT_TRY(device_->synchronize(stream_));
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  ends.join();
  const Result<void> again = layer_->call("forward", refs_, memory_, stream_);
  if (again || again.error().code != ErrorCode::kInvalidState)
    return fail(Stage::kLaunch, ErrorCode::kCheckFailed, "a call behind abort() is not refused");
  MOEJIT_TRY(layer_->call("update_weights", weights_, {}, stream_));
  MOEJIT_TRY(device_->synchronize(stream_));
  return fmt::format("aborted {:.1f}", ms);
}

Result<std::string> NcclRank::answer(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  uint64_t seed = 1;
  words >> word >> seed;
  if (word == "run") {
    MOEJIT_TRY(set_inputs(seed));
    MOEJIT_TRY(launch());
    return wait();
  }
  if (word == "record") {
    MOEJIT_TRY(record());
    return "recorded";
  }
  if (word == "replay") {
    MOEJIT_TRY(set_inputs(seed));
    MOEJIT_TRY(driver(api_->graph_launch(graph_, stream_), "cuGraphLaunch", *api_));
    return wait();
  }
  if (word == "save") return save();
  if (word == "alone") return run_alone();
  return fail(Stage::kCommand, ErrorCode::kUsage, "unknown line " + line);
}

std::string NcclRank::obey(const std::string& line) {
  const Result<std::string> said = answer(line);
  return said ? *said
              : fmt::format("failed {} {}", to_string(said.error().code), said.error().message);
}

}  // namespace moejit::testing
