// SPDX-License-Identifier: Apache-2.0
#include "docs/examples/train/moe_block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

namespace train {
namespace {

using moejit::compiler::TensorRole;

uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to nearest, ties even
}
float float_of(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

std::vector<uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  std::ranges::transform(values, bits.begin(), [](float value) { return bf16_of(value); });
  return bits;
}
std::vector<float> floats_of(const std::vector<uint16_t>& bits) {
  std::vector<float> values(bits.size());
  std::ranges::transform(bits, values.begin(), float_of);
  return values;
}

std::string description(const BlockSizes& sizes, std::string_view recipe) {
  return R"({"name": "train", "experts": )" + std::to_string(sizes.experts) + R"(, "top_k": )" +
         std::to_string(sizes.top_k) + R"(, "hidden": )" + std::to_string(sizes.hidden) +
         R"(, "intermediate": )" + std::to_string(sizes.intermediate) + R"(, "recipe": ")" +
         std::string(recipe) + R"(", "max_tokens": )" + std::to_string(sizes.tokens) +
         R"(, "passes": ["forward", "backward"]})";
}

}  // namespace

Parameter::Parameter(int64_t size, double deviation, uint64_t seed)
    : values_(static_cast<size_t>(size)), first_(values_.size()), second_(values_.size()) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.0, deviation);
  for (float& value : values_) value = static_cast<float>(normal(random));
}

void Parameter::update(const std::vector<float>& gradient, float rate) {
  constexpr float kFirst = 0.9f, kSecond = 0.99f, kEpsilon = 1e-10f;
  first_share_ *= kFirst;
  second_share_ *= kSecond;
  for (size_t i = 0; i < values_.size(); ++i) {
    first_[i] += (1.0f - kFirst) * (gradient[i] - first_[i]);
    second_[i] += (1.0f - kSecond) * (gradient[i] * gradient[i] - second_[i]);
    const float mean = first_[i] / (1.0f - first_share_);
    const float square = second_[i] / (1.0f - second_share_);
    values_[i] -= rate * mean / (std::sqrt(square) + kEpsilon);
  }
}

MoeBlock::MoeBlock(const BlockSizes& sizes, uint64_t seed, moejit::runtime::Device& device)
    : sizes_(sizes),
      device_(device),
      w1_(sizes.experts * 2 * sizes.intermediate * sizes.hidden,
          1.0 / std::sqrt(static_cast<double>(sizes.hidden)), seed),
      w2_(sizes.experts * sizes.hidden * sizes.intermediate,
          1.0 / std::sqrt(static_cast<double>(sizes.intermediate)), seed + 1),
      router_(sizes.experts * sizes.hidden, 1.0 / std::sqrt(static_cast<double>(sizes.hidden)),
              seed + 2) {}

Result<std::unique_ptr<MoeBlock>> MoeBlock::create(const BlockSizes& sizes, std::string_view recipe,
                                                   uint64_t seed, moejit::runtime::Device& device,
                                                   moejit::runtime::Engine& engine) {
  std::unique_ptr<MoeBlock> block(new MoeBlock(sizes, seed, device));
  MOEJIT_TRY_ASSIGN(const auto layer,
                    moejit::compiler::parse_layer(description(sizes, recipe), "train"));
  MOEJIT_TRY_ASSIGN(const auto plan, moejit::compiler::plan_layer(layer, device.target()));
  MOEJIT_TRY_ASSIGN(block->layer_, moejit::runtime::PreparedPlan::prepare(plan, engine, device));
  MOEJIT_TRY(block->allocate());
  MOEJIT_TRY(block->upload_weights());
  return block;
}

MoeBlock::~MoeBlock() {
  for (const moejit::runtime::TensorRef& tensor : tensors_) device_.release(tensor.data);
  device_.release(memory_.workspace);
  device_.release(memory_.saved);
}

Result<void> MoeBlock::allocate() {
  for (const moejit::compiler::TensorPlan& tensor : layer_->plan().tensors) {
    if (!is_callers(tensor.role)) continue;
    if (tensor.is_optional) continue;
    std::vector<int64_t>& shape = shapes_.emplace_back();
    for (const moejit::compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
    MOEJIT_TRY_ASSIGN(void* const data, device_.allocate(tensor.bytes));
    tensors_.push_back({tensor.name, tensor.dtype, shape, data});
  }
  memory_.workspace_bytes = layer_->plan().workspace_bytes;
  memory_.saved_bytes = layer_->plan().saved_bytes;
  MOEJIT_TRY_ASSIGN(memory_.workspace, device_.allocate(memory_.workspace_bytes));
  MOEJIT_TRY_ASSIGN(memory_.saved, device_.allocate(memory_.saved_bytes));
  MOEJIT_TRY(start_state());
  return device_.fill(address_of("status"), std::byte{0}, 4, nullptr);
}

// Recipes whose scales follow from the steps before start with histories of zeros, scales of ones.
Result<void> MoeBlock::start_state() {
  for (const moejit::compiler::TensorPlan& tensor : layer_->plan().tensors) {
    if (tensor.role != TensorRole::kState) continue;
    const auto size = static_cast<size_t>(tensor.bytes) / sizeof(float);
    MOEJIT_TRY(write(tensor.name, std::vector<float>(size, tensor.first_value)));
  }
  return {};
}

void* MoeBlock::address_of(std::string_view tensor) const {
  return std::ranges::find(tensors_, tensor, &moejit::runtime::TensorRef::name)->data;
}

template <typename T>
Result<void> MoeBlock::write(std::string_view tensor, const std::vector<T>& values) {
  return device_.copy_to_device(address_of(tensor), values.data(),
                                static_cast<int64_t>(values.size() * sizeof(T)));
}

template <typename T>
Result<std::vector<T>> MoeBlock::read(std::string_view tensor, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  MOEJIT_TRY(device_.copy_to_host(values.data(), address_of(tensor),
                                  count * static_cast<int64_t>(sizeof(T))));
  return values;
}

Result<void> MoeBlock::upload_weights() {
  MOEJIT_TRY(write("w1", bf16_of(w1_.values())));
  MOEJIT_TRY(write("w2", bf16_of(w2_.values())));
  return layer_->call("update_weights", tensors_, {}, nullptr);
}

void MoeBlock::route(const std::vector<float>& x) {
  const int64_t hidden = sizes_.hidden, top_k = sizes_.top_k;
  topk_ids_.clear();
  topk_probs_.clear();
  std::vector<float> logits(static_cast<size_t>(sizes_.experts));
  std::vector<int32_t> order(logits.size());
  for (int64_t t = 0; t < sizes_.tokens; ++t) {
    const float* row = &x[static_cast<size_t>(t * hidden)];
    for (size_t e = 0; e < logits.size(); ++e)
      logits[e] = std::inner_product(row, row + hidden,
                                     &router_.values()[e * static_cast<size_t>(hidden)], 0.0f);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::partial_sort(order, order.begin() + top_k, [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const float largest = logits[static_cast<size_t>(order[0])];
    float sum = 0.0f;
    for (int64_t k = 0; k < top_k; ++k)
      sum += std::exp(logits[static_cast<size_t>(order[static_cast<size_t>(k)])] - largest);
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t id = order[static_cast<size_t>(k)];
      topk_ids_.push_back(id);
      topk_probs_.push_back(std::exp(logits[static_cast<size_t>(id)] - largest) / sum);
    }
  }
}

Result<std::vector<float>> MoeBlock::forward(const std::vector<float>& x) {
  x_ = x;
  route(x);
  MOEJIT_TRY(write("x", bf16_of(x)));
  MOEJIT_TRY(write("topk_ids", topk_ids_));
  MOEJIT_TRY(write("topk_probs", topk_probs_));
  MOEJIT_TRY(layer_->call("forward", tensors_, memory_, nullptr));
  MOEJIT_TRY(layer_->call("update_forward_scales", tensors_, {}, nullptr));
  MOEJIT_TRY_ASSIGN(const std::vector<uint16_t> y,
                    read<uint16_t>("y", sizes_.tokens * sizes_.hidden));
  return floats_of(y);
}

Result<std::vector<float>> MoeBlock::backward(const std::vector<float>& dy) {
  MOEJIT_TRY(write("dy", bf16_of(dy)));
  MOEJIT_TRY(layer_->call("backward", tensors_, memory_, nullptr));
  MOEJIT_TRY(layer_->call("update_backward_scales", tensors_, {}, nullptr));
  MOEJIT_TRY_ASSIGN(const std::vector<uint16_t> bits,
                    read<uint16_t>("dx", sizes_.tokens * sizes_.hidden));
  MOEJIT_TRY_ASSIGN(const std::vector<float> dprobs,
                    read<float>("dprobs", sizes_.tokens * sizes_.top_k));
  std::vector<float> dx = floats_of(bits);
  backward_router(dprobs, dx);
  return dx;
}

void MoeBlock::backward_router(const std::vector<float>& dprobs, std::vector<float>& dx) {
  const auto hidden = static_cast<size_t>(sizes_.hidden);
  const auto top_k = static_cast<size_t>(sizes_.top_k);
  router_gradient_.assign(router_.values().size(), 0.0f);
  for (size_t t = 0; t < static_cast<size_t>(sizes_.tokens); ++t) {
    float mean = 0.0f;  // of dprobs, as the softmax weighs them
    for (size_t k = t * top_k; k < (t + 1) * top_k; ++k) mean += topk_probs_[k] * dprobs[k];
    for (size_t k = t * top_k; k < (t + 1) * top_k; ++k) {
      const float dlogit = topk_probs_[k] * (dprobs[k] - mean);
      const size_t row = static_cast<size_t>(topk_ids_[k]) * hidden;
      for (size_t i = 0; i < hidden; ++i) {
        router_gradient_[row + i] += dlogit * x_[t * hidden + i];
        dx[t * hidden + i] += dlogit * router_.values()[row + i];
      }
    }
  }
}

Result<void> MoeBlock::update(float rate) {
  MOEJIT_TRY_ASSIGN(const std::vector<float> dw1,
                    read<float>("dw1", static_cast<int64_t>(w1_.values().size())));
  MOEJIT_TRY_ASSIGN(const std::vector<float> dw2,
                    read<float>("dw2", static_cast<int64_t>(w2_.values().size())));
  w1_.update(dw1, rate);
  w2_.update(dw2, rate);
  router_.update(router_gradient_, rate);
  return upload_weights();
}

}  // namespace train
