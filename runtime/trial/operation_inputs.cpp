// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/operation_inputs.h"

#include "runtime/reference/route.h"
#include "runtime/reference/shared.h"
#include "runtime/trial/device_tensors.h"
#include "runtime/trial/input_file.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/router_inputs.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::trial {
namespace {

using runtime::copy_elements;
using runtime::element_count;
using runtime::HostTensor;
using runtime::TensorMap;

using compiler::CallDim;
using compiler::Plan;
using compiler::TensorPlan;
using runtime::ToldDims;

// Reads the list of tensors of multi_cast_transpose.
Result<void> read_list(const InputFile& file, const ListedTensors& list, TensorMap& inputs) {
  ToldDims none;
  for (size_t i = 0; i < list.sizes.size(); ++i) {
    const auto& [rows, columns] = list.sizes[i];
    MOEJIT_TRY(file.read({.name = fmt::format("input.{}", i),
                          .dtype = list.spec.input,
                          .shape = {{"rows", rows}, {"columns", columns}}},
                         none, inputs));
    const TensorPlan scale{
        .name = fmt::format("scale.{}", i), .dtype = compiler::DType::kF32, .shape = {{"1", 1}}};
    if (file.has(scale.name)) MOEJIT_TRY(file.read(scale, none, inputs));
  }
  return {};
}

// Returns the sizes of a call. A size that no tensor gives is its upper bound.
compiler::CallDims dims_of(const Plan& plan, const ToldDims& told) {
  compiler::CallDims dims =
      compiler::call_dims(plan.bounds, told.tokens == ToldDims::kUntold ? 0 : told.tokens);
  for (const TensorPlan& tensor : plan.tensors)
    for (const compiler::Dim& dim : tensor.shape)
      if (compiler::call_dim(dim) == CallDim::kColumnBlocks) dims.columns = 128 * dim.value;
  if (told.rows != ToldDims::kUntold) dims.rows = told.rows;
  if (told.columns != ToldDims::kUntold) dims.columns = told.columns;
  return dims;
}

Result<CallInputs> read_call(const Plan& plan, const std::string& path) {
  MOEJIT_TRY_ASSIGN(const InputFile file, InputFile::open(path));
  CallInputs call;
  ToldDims told;
  if (const auto list = listed_tensors(plan)) {
    MOEJIT_TRY(read_list(file, *list, call.tensors));
  } else {
    for (const TensorPlan& tensor : plan.tensors) {
      const bool is_needed = !tensor.is_optional && tensor.role == compiler::TensorRole::kInput;
      if (compiler::reads(plan.kernels.front(), tensor.name) &&
          (file.has(tensor.name) || is_needed))
        MOEJIT_TRY(file.read(tensor, told, call.tensors));
    }
  }
  call.dims = dims_of(plan, told);
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.role == compiler::TensorRole::kOutput && !call.tensors.contains(tensor.name) &&
        compiler::reads(plan.kernels.front(), tensor.name))
      call.tensors.emplace(tensor.name, zeros(tensor));  // to which the kernel adds
  call.rows = count_rows(plan, call);
  return call;
}

// Returns the ids [T, K + n] of experts that tokens choose, with n shared experts behind the
// others.
std::vector<int64_t> all_ids(const compiler::Layer& layer, const TensorMap& inputs) {
  const std::vector<int64_t> ids = chosen_ids(layer, inputs);
  if (layer.shared.experts == 0) return ids;
  const reference::SharedShape shape{
      .rank_experts = layer.local_experts, .top_k = layer.top_k, .shared = layer.shared.experts};
  const std::vector<float> probs(ids.size());
  const reference::AllChoices all = append_shared(shape, 0, ids, probs, {});
  return {all.ids.begin(), all.ids.end()};
}

}  // namespace

Result<CallInputs> load_operation_call(const Plan& plan, const InputOptions& options) {
  if (!options.input_path.empty()) return read_call(plan, options.input_path);
  if (options.random.routing != RandomRouting::kSkewed && !routed_at_random(plan, options))
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--routing is {}, but no rows of {} belong to experts",
                            to_string(options.random.routing), plan.operation->name),
                "leave --routing out");
  MOEJIT_TRY_ASSIGN(const int64_t size, random_size(plan, options));
  return random_operation_call(plan, size, options.random);
}

compiler::CallRows count_rows(const Plan& plan, const CallInputs& call) {
  compiler::CallRows rows{.tokens = call.dims.tokens, .routed_tokens = call.dims.tokens};
  const auto find = [&](const char* name) -> const HostTensor* {
    const auto found = call.tensors.find(name);
    return found == call.tensors.end() ? nullptr : &found->second;
  };
  reference::Route route;
  const int32_t shared = plan.layer ? plan.layer->shared.experts : 0;
  const reference::LayerShape shape{.experts = plan.bounds.groups + shared,
                                    .top_k = plan.bounds.top_k + shared,
                                    .alignment = plan.bounds.splits_alignment,
                                    .max_rows = plan.bounds.max_permuted_rows,
                                    .ignores_foreign = true};
  if (plan.layer && (plan.layer->router || call.tensors.contains("topk_ids"))) {
    route = reference::route(all_ids(*plan.layer, call.tensors), call.dims.tokens, shape);
  } else if (const HostTensor* ids = find("topk_ids")) {
    route = reference::route(expert_ids(*ids), call.dims.tokens, shape);
  } else if (const HostTensor* routing = find("routing_map")) {
    route = reference::route_map(runtime::elements<uint8_t>(*routing), call.dims.tokens, shape);
  } else if (const HostTensor* sizes = find("tokens_per_expert")) {
    route = reference::split_rows(expert_ids(*sizes), call.dims.tokens, shape);
  } else {
    if (const HostTensor* counts = find("counts")) route.counts = copy_elements<int32_t>(*counts);
    if (const HostTensor* offs = find("offs")) route.offs = copy_elements<int32_t>(*offs);
    if (const HostTensor* map = find("row_map")) route.row_map = copy_elements<int32_t>(*map);
  }
  rows.padded = route.rows();
  rows.routed = route.counts.empty()
                    ? std::ranges::count_if(route.row_map, [](int32_t row) { return row >= 0; })
                    : route.routed_rows();
  if (!route.counts.empty()) rows.routed_experts = route.routed_experts();
  if (!route.row_map.empty()) rows.routed_tokens = route.routed_tokens(shape.top_k);
  return rows;
}

void cut_rows(const Plan& plan, const CallInputs& call, TensorMap& tensors) {
  if (!call.tensors.contains("offs")) return;
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    const auto found = tensors.find(tensor.name);
    if (found == tensors.end() || compiler::call_dim(tensor) != CallDim::kRows) continue;
    HostTensor& host = found->second;
    host.shape.front() = std::min(host.shape.front(), call.rows.padded);
    host.bytes.resize(
        static_cast<size_t>(element_count(host.shape) * compiler::size_bytes(host.dtype)));
  }
}

}  // namespace moejit::trial
