// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/layer_inputs.h"

#include "runtime/reference/quantize.h"
#include "runtime/trial/input_file.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/router_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <utility>

namespace moejit::trial {
namespace {

using runtime::elements;
using runtime::HostTensor;
using runtime::TensorMap;

using compiler::Plan;
using compiler::TensorPlan;

constexpr int64_t kMeasuredExperts = 4;  // that have weights of their own
constexpr std::array<std::string_view, 2> kBiases = {"b1", "b2"};
constexpr std::array<std::string_view, 4> kQuantizedWeights = {"w1_q", "w1_scale_inv", "w2_q",
                                                               "w2_scale_inv"};

// Returns whether a call that will be made takes the gradient of y.
bool takes_gradient(const Plan& plan, const InputOptions& options) {
  if (options.calls.empty()) return compiler::find_tensor(plan, "dy") != nullptr;
  return std::ranges::any_of(options.calls, [&](const std::string& call) {
    return compiler::call_takes(plan, call, "dy");
  });
}

// Returns whether a call reads an input of the caller; of backward, one that forward does not read.
bool is_input_of(const Plan& plan, const TensorPlan& tensor, std::string_view call) {
  return tensor.role == compiler::TensorRole::kInput &&
         compiler::call_takes(plan, call, tensor.name) &&
         (call == "forward" || !compiler::call_takes(plan, "forward", tensor.name));
}

// Reads a tensor of the plan. `gradient_hint` says what to do if dy is missing.
Result<void> read_tensor(const InputFile& file, const Plan& plan, std::string_view name,
                         const char* gradient_hint, runtime::ToldDims& told, TensorMap& inputs) {
  const TensorPlan* wanted = compiler::find_tensor(plan, name);
  if (wanted == nullptr)
    return fail(Stage::kFile, ErrorCode::kInternal,
                fmt::format("the plan has no tensor \"{}\"", name));
  auto read = file.read(*wanted, told, inputs);
  if (!read && read.error().code == ErrorCode::kMissingTensor && name == "dy")
    read.error().hint = gradient_hint;
  return read;
}

Result<int64_t> read_token_count(const InputFile& file, const compiler::Layer& layer) {
  MOEJIT_TRY_ASSIGN(const checkpoint::SafetensorsEntry* x, file.at("x"));
  const int64_t tokens = x->shape.empty() ? 0 : x->shape.front();
  if (tokens <= layer.max_tokens) return tokens;
  return fail(Stage::kFile, ErrorCode::kTensorMismatch,
              fmt::format("{}: tensor \"{}\" has {} tokens, the layer's max_tokens is {}",
                          file.path(), x->name, tokens, layer.max_tokens),
              "raise max_tokens in the layer description");
}

Result<TensorMap> read_file_inputs(const Plan& plan, const InputOptions& options,
                                   bool with_weights) {
  MOEJIT_TRY_ASSIGN(const InputFile file, InputFile::open(options.input_path, options.prefix));
  const char* const gradient_hint =
      options.calls.empty() ? "add the gradient of y, or leave --pass backward out"
                            : "add the gradient of y, or choose a call before the backward pass";
  runtime::ToldDims told;
  MOEJIT_TRY_ASSIGN(told.tokens, read_token_count(file, *plan.layer));
  TensorMap inputs;
  const auto read = [&](std::string_view name) {
    return read_tensor(file, plan, name, gradient_hint, told, inputs);
  };
  const bool has_gradient = takes_gradient(plan, options);
  for (const TensorPlan& tensor : plan.tensors) {
    const bool is_needed = is_input_of(plan, tensor, "forward") ||
                           (has_gradient && is_input_of(plan, tensor, "backward"));
    if (is_needed) MOEJIT_TRY(read(tensor.name));
    const bool is_sum = is_sum_of_router(plan, tensor);
    if (is_sum && !file.has(tensor.name)) inputs.emplace(tensor.name, zeros(tensor));
    if (is_sum && file.has(tensor.name)) MOEJIT_TRY(read(tensor.name));
    if (tensor.role != compiler::TensorRole::kState) continue;
    if (!file.has(tensor.name))
      inputs.emplace(tensor.name, first_state(tensor));
    else
      MOEJIT_TRY(read(tensor.name));
  }
  if (!with_weights) return inputs;
  if (plan.layer->biases)
    for (const std::string_view name : kBiases) MOEJIT_TRY(read(name));
  const std::vector<std::string_view> weights =
      has_separate_gate_up(*plan.layer) ? std::vector<std::string_view>{"w1_gate", "w1_up", "w2"}
                                        : std::vector<std::string_view>{"w1", "w2"};
  const compiler::Format& format = plan.layer->recipe.weights;
  if (is_packed(format) || (has_scales(format) && !file.has(weights.front()) && file.has("w1_q"))) {
    for (const std::string_view name : kQuantizedWeights) MOEJIT_TRY(read(name));
    return inputs;
  }
  for (const std::string_view name : weights) MOEJIT_TRY(read(name));
  return inputs;
}

// Checks that weights which came quantized have equal scales in all blocks of a sharing group. The
// layer's GEMMs read only the scale of the group's first block.
Result<void> check_shared_scales(const compiler::Layer& layer, std::string_view name,
                                 const HostTensor& scales) {
  const int64_t blocks = scales.shape.back();
  const std::span<const float> values = elements<float>(scales);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i) % blocks;
    if (!std::isfinite(values[i]))
      return fail(
          Stage::kFile, ErrorCode::kInvalidFile,
          fmt::format("tensor {}: block {} of row {} has the scale {}, wanted a finite number",
                      name, block, static_cast<int64_t>(i) / blocks, values[i]),
          "is the file damaged, or did a conversion divide by 0?");
    const auto before = static_cast<size_t>(block % layer.scale_sharing_k);
    if (values[i] == values[i - before]) continue;
    return fail(
        Stage::kFile, ErrorCode::kTensorMismatch,
        fmt::format("tensor {}: block {} of row {} has the scale {:g}, wanted {:g} as the "
                    "block before it, with which it shares its scale",
                    name, block, static_cast<int64_t>(i) / blocks, values[i], values[i - before]),
        "give bf16 weights, or scale_sharing_k 1 in the layer description");
  }
  return {};
}

// Returns column-wise codes [E, columns, rows], whose halves of gate and up are padded with zeros
// as the plan wants them.
HostTensor pad_halves(const std::vector<uint8_t>& codes, const TensorPlan& wanted, int64_t halves) {
  HostTensor padded = zeros(wanted);
  const int64_t parts = halves * padded.shape[0] * padded.shape[1];
  const int64_t room = padded.shape[2] / halves;
  const int64_t count = static_cast<int64_t>(codes.size()) / parts;
  const auto bytes = std::as_bytes(std::span(codes));
  for (int64_t part = 0; part < parts; ++part)
    std::copy_n(bytes.begin() + part * count, count, padded.bytes.begin() + part * room);
  return padded;
}

// Adds the column-wise weights of dgrad to weights that came quantized. A 128x128 block has one
// scale along either dimension, so they are the same codes and scales, transposed.
Result<void> add_columns(const Plan& plan, TensorMap& inputs) {
  const compiler::Layer& layer = *plan.layer;
  if (layer.recipe.weights_colwise.scale != compiler::ScaleOf::k128x128)
    return fail(
        Stage::kFile, ErrorCode::kUnsupported,
        "the weights are quantized already, wanted bf16 for a backward pass of this recipe",
        "its dgrad multiplies with columns of the weights, which are quantized from w1 and w2");
  for (const std::string name : {"w1", "w2"}) {
    const TensorPlan* const wanted = compiler::find_tensor(plan, name + "_colwise_q");
    if (wanted == nullptr) continue;
    const HostTensor& codes = inputs.at(name + "_q");
    const int64_t sections = name == "w1" ? compiler::w1_sections(layer) : 1;
    const reference::ColwiseWeights columns = reference::transpose(
        {.experts = codes.shape[0],
         .rows = codes.shape[1],
         .cols = codes.shape[2],
         .sections = sections,
         .q = runtime::copy_elements<uint8_t>(codes),
         .scale_inv = runtime::copy_elements<float>(inputs.at(name + "_scale_inv"))});
    HostTensor scales = zeros(*compiler::find_tensor(plan, name + "_colwise_scale_inv"));
    std::ranges::copy(std::as_bytes(std::span(columns.scale_inv)), scales.bytes.begin());
    inputs.emplace(name + "_colwise_scale_inv", std::move(scales));
    inputs.emplace(name + "_colwise_q", pad_halves(columns.q, *wanted, sections));
  }
  return {};
}

}  // namespace

Result<TensorMap> load_layer_inputs(const Plan& plan, const InputOptions& options) {
  const bool has_checkpoint = !options.checkpoint.shards.empty();
  TensorMap inputs;
  if (options.input_path.empty()) {
    MOEJIT_TRY_ASSIGN(const int64_t tokens, random_size(plan, options));
    const uint64_t seed = options.random.seed;
    inputs = random_tokens(*plan.layer, tokens, options.random);
    if (takes_gradient(plan, options)) inputs.merge(random_gradient(*plan.layer, tokens, seed));
    inputs.merge(random_states(plan, seed));
    if (!has_checkpoint) {
      const int64_t experts = held_experts(*plan.layer);
      inputs.merge(random_weights_of(
          *plan.layer, options.is_measured ? std::min(experts, kMeasuredExperts) : experts, seed));
    }
  } else {
    MOEJIT_TRY_ASSIGN(inputs, read_file_inputs(plan, options, !has_checkpoint));
  }
  if (has_checkpoint) {
    MOEJIT_TRY_ASSIGN(TensorMap weights,
                      checkpoint::load_expert_weights(*plan.layer, options.checkpoint));
    inputs.merge(weights);
  }
  for (const std::string& call : options.calls) inputs.merge(first_gradients(plan, call));
  if (has_quantized_weights(inputs)) {
    for (const std::string_view name : {"w1_scale_inv", "w2_scale_inv"})
      MOEJIT_TRY(check_shared_scales(*plan.layer, name, inputs.find(name)->second));
    if (takes_gradient(plan, options)) MOEJIT_TRY(add_columns(plan, inputs));
  }
  return inputs;
}

bool has_quantized_weights(const TensorMap& inputs) { return inputs.contains("w1_q"); }

int64_t token_count(const TensorMap& inputs) {
  const auto x = inputs.find("x");
  return x == inputs.end() ? 0 : x->second.shape.front();
}

}  // namespace moejit::trial
