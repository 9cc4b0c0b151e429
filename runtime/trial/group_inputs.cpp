// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/group_inputs.h"

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/trial/layer_inputs.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <ranges>
#include <string_view>
#include <utility>

namespace moejit::trial {

using compiler::Plan;
using runtime::HostTensor;
using runtime::TensorMap;

namespace {

constexpr std::array kOfTokens = std::to_array<std::string_view>(
    {"x", "logits", "topk_ids", "topk_probs", "shared_probs", "dy"});
// Tensors of a router that tell of all experts, or of a loss, alike on all ranks.
constexpr std::array kOfAllExperts =
    std::to_array<std::string_view>({"router_bias", "expert_scale", "counts", "unbiased_counts",
                                     "score_sums", "z_sum", "aux_coefficient", "z_coefficient"});

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a file has the inputs of each rank, or of all tokens and experts together.
enum class FileForm { kOfEachRank, kOfAllTokens };

Result<FileForm> read_form(std::span<const Plan> plans, const std::string& path) {
  MOEJIT_TRY_ASSIGN(const auto file, checkpoint::SafetensorsFile::open(path));
  const std::string first = rank_prefix(0) + "x";
  if (file.find(first) != nullptr) return FileForm::kOfEachRank;
  if (file.find("x") == nullptr)
    return fail(
        Stage::kFile, ErrorCode::kMissingTensor,
        fmt::format("{}: got neither tensor \"{}\" nor \"x\", wanted one of them", path, first),
        "x has the tokens of all ranks, rank0.x, rank1.x, ... those of each");
  for (const compiler::TensorPlan& tensor : plans.front().tensors)
    if (tensor.role == compiler::TensorRole::kState && file.find(tensor.name) != nullptr)
      return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                  fmt::format("{}: got tensor \"{}\" for all ranks, wanted a state for each", path,
                              tensor.name),
                  fmt::format("name the tensors of each rank: {}, {}{}, ...", first, rank_prefix(0),
                              tensor.name));
  return FileForm::kOfAllTokens;
}

// Loads the inputs of one rank with all tokens and experts, and splits them among the ranks. States
// are left out.
Result<std::vector<TensorMap>> load_and_split(const Plan& plan, InputOptions options) {
  const auto ranks = static_cast<int64_t>(plan.layer->expert_parallel.ranks);
  if (options.input_path.empty()) {
    MOEJIT_TRY_ASSIGN(const int64_t tokens, random_size(plan, options));
    options.tokens = tokens * ranks;
  }
  MOEJIT_TRY_ASSIGN(const compiler::Plan one,
                    compiler::plan_layer(compiler::layer_of_one_rank(*plan.layer), plan.target));
  MOEJIT_TRY_ASSIGN(TensorMap inputs, load_layer_inputs(one, options));
  for (const compiler::TensorPlan& tensor : one.tensors)
    if (tensor.role == compiler::TensorRole::kState) inputs.erase(tensor.name);
  std::vector<int64_t> tokens;
  for (int64_t rank = 0; rank < ranks; ++rank)
    tokens.push_back(token_count(inputs) / ranks + (rank < token_count(inputs) % ranks ? 1 : 0));
  return split_inputs(*plan.layer, inputs, tokens);
}

}  // namespace

std::string rank_prefix(std::size_t rank) { return fmt::format("rank{}.", rank); }

Result<std::vector<TensorMap>> load_group_inputs(std::span<const Plan> plans,
                                                 const InputOptions& options) {
  FileForm form = FileForm::kOfAllTokens;
  if (!options.input_path.empty()) {
    MOEJIT_TRY_ASSIGN(form, read_form(plans, options.input_path));
  }
  if (form == FileForm::kOfAllTokens) return load_and_split(plans.front(), options);
  std::vector<TensorMap> ranks;
  InputOptions of_rank = options;
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    of_rank.prefix = rank_prefix(rank);
    MOEJIT_TRY_ASSIGN(TensorMap inputs, load_layer_inputs(plans[rank], of_rank));
    ranks.push_back(std::move(inputs));
    of_rank.checkpoint.first_expert += plans[rank].layer->local_experts;
  }
  return ranks;
}

HostTensor slice_rows(const HostTensor& tensor, int64_t first, int64_t count) {
  HostTensor slice{tensor.dtype, tensor.shape, {}};
  const int64_t rows = tensor.shape.front();
  const int64_t row_bytes = rows == 0 ? 0 : std::ssize(tensor.bytes) / rows;
  slice.shape.front() = count;
  const auto begin = tensor.bytes.begin() + first * row_bytes;
  slice.bytes.assign(begin, begin + count * row_bytes);
  return slice;
}

namespace {

void append_rows(HostTensor& tensor, const HostTensor& rows) {
  tensor.shape.front() += rows.shape.front();
  tensor.bytes.insert(tensor.bytes.end(), rows.bytes.begin(), rows.bytes.end());
}

}  // namespace

std::vector<TensorMap> split_inputs(const compiler::Layer& layer, const TensorMap& inputs,
                                    std::span<const int64_t> tokens) {
  const int64_t local = layer.local_experts, shared = layer.shared.experts;
  const int64_t experts = std::ssize(tokens) * local;
  std::vector<TensorMap> ranks;
  int64_t first_token = 0;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    TensorMap& own = ranks.emplace_back();
    for (const auto& [name, tensor] : inputs) {
      if (is_among(kOfTokens, name)) {
        own[name] = slice_rows(tensor, first_token, tokens[rank]);
      } else if (is_among(kOfAllExperts, name) || tensor.shape.front() < experts + shared) {
        own[name] = tensor;
      } else {
        own[name] = slice_rows(tensor, static_cast<int64_t>(rank) * local, local);
        append_rows(own[name], slice_rows(tensor, experts, shared));
      }
    }
    first_token += tokens[rank];
  }
  return ranks;
}

CallInputs join_inputs(const compiler::Layer& layer, std::span<const CallInputs> ranks) {
  TensorMap joined = ranks.back().tensors;
  for (const CallInputs& rank : ranks | std::views::reverse | std::views::drop(1))
    for (const auto& [name, tensor] : rank.tensors) {
      if (is_among(kOfAllExperts, name)) continue;
      const int64_t shared = is_among(kOfTokens, name) ? 0 : layer.shared.experts;
      HostTensor whole = slice_rows(tensor, 0, tensor.shape.front() - shared);
      append_rows(whole, joined.at(name));
      joined[name] = std::move(whole);
    }
  return call_of(std::move(joined));
}

}  // namespace moejit::trial
