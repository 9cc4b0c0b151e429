// SPDX-License-Identifier: Apache-2.0
// Trains a model of two MoE blocks with the recipe bf16 and, from the same weights on the same
// tokens, with fp8_flow, and compares the losses.
//   train [cuda|sim] [steps] [tokens] [hidden] [intermediate] [limit]
// Fails where a loss did not fall, or where the two differ by more than `limit` percent in the mean
// of the last fifth of the steps (default 0.25).
//
// The task: tokens come from clusters, and each has a label drawn from probabilities that are
// another linear function of it in each cluster: experts that specialise have an advantage, and the
// entropy of the labels is what no model gets below. The loss is the cross entropy, as of language
// models. Adam with fp32 weights runs on the host.
#include "docs/examples/train/moe_block.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>

using namespace moejit;
using train::BlockSizes;
using train::MoeBlock;

namespace {

constexpr size_t kClusters = 8, kLabels = 64;

struct Batch {
  std::vector<float> x;        // [tokens, hidden]
  std::vector<size_t> labels;  // [tokens]
};

// logits[i, label] = rows[i] . weights[label]
std::vector<float> logits_of(const std::vector<float>& rows, const float* weights, size_t hidden) {
  std::vector<float> logits(rows.size() / hidden * kLabels);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] =
        std::inner_product(&rows[i / kLabels * hidden], &rows[i / kLabels * hidden] + hidden,
                           weights + i % kLabels * hidden, 0.0f);
  return logits;
}

void softmax(float* row) {
  const float largest = *std::max_element(row, row + kLabels);
  float sum = 0.0f;
  for (size_t i = 0; i < kLabels; ++i) sum += row[i] = std::exp(row[i] - largest);
  for (size_t i = 0; i < kLabels; ++i) row[i] /= sum;
}

class Task {
 public:
  explicit Task(const BlockSizes& sizes)
      : tokens_(static_cast<size_t>(sizes.tokens)), hidden_(static_cast<size_t>(sizes.hidden)) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    centers_.resize(kClusters * hidden_);
    for (float& value : centers_) value = normal(random);
    weights_.resize(kClusters * kLabels * hidden_);
    const float deviation = 2.0f / std::sqrt(static_cast<float>(hidden_));
    for (float& value : weights_) value = deviation * normal(random);
  }

  // The tokens of a step, the same in every run.
  Batch batch(int64_t step) const {
    std::mt19937_64 random(1000 + static_cast<uint64_t>(step));
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    Batch batch;
    for (size_t t = 0; t < tokens_; ++t) {
      const size_t cluster = random() % kClusters;
      std::vector<float> x(hidden_);
      for (size_t i = 0; i < hidden_; ++i)
        x[i] = 0.7f * centers_[cluster * hidden_ + i] + 0.7f * normal(random);
      std::vector<float> probs = logits_of(x, &weights_[cluster * kLabels * hidden_], hidden_);
      softmax(probs.data());
      float left = uniform(random);
      size_t label = 0;
      while (label + 1 < kLabels && (left -= probs[label]) > 0.0f) ++label;
      batch.x.insert(batch.x.end(), x.begin(), x.end());
      batch.labels.push_back(label);
    }
    return batch;
  }

 private:
  size_t tokens_, hidden_;
  std::vector<float> centers_, weights_;
};

// The mean cross entropy of the labels, and its gradients of rows and weights.
struct Loss {
  double value = 0.0;
  std::vector<float> drows, dweights;
};

Loss loss_of(const std::vector<float>& rows, const std::vector<float>& weights,
             const std::vector<size_t>& labels) {
  const size_t tokens = labels.size(), hidden = rows.size() / tokens;
  std::vector<float> probs = logits_of(rows, weights.data(), hidden);
  Loss loss{0.0, std::vector<float>(rows.size()), std::vector<float>(weights.size())};
  for (size_t t = 0; t < tokens; ++t) {
    float* row = &probs[t * kLabels];
    softmax(row);
    loss.value -= std::log(double{row[labels[t]]}) / static_cast<double>(tokens);
    row[labels[t]] -= 1.0f;
    for (size_t label = 0; label < kLabels; ++label) {
      const float dlogit = row[label] / static_cast<float>(tokens);
      for (size_t i = 0; i < hidden; ++i) {
        loss.drows[t * hidden + i] += dlogit * weights[label * hidden + i];
        loss.dweights[label * hidden + i] += dlogit * rows[t * hidden + i];
      }
    }
  }
  return loss;
}

struct Run {
  std::string target;
  BlockSizes sizes;
  int64_t steps = 0;
  float rate = 1e-3f;
  double limit = 0.0025;  // of the mean deviation
};

void add(std::vector<float>& sum, const std::vector<float>& values) {
  std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
}

// The loss of every step, of the logits that a linear head makes of h + MoE(h) with h = x + MoE(x).
Result<std::vector<double>> train_with(std::string_view recipe, const Run& run, const Task& task,
                                       runtime::Device& device, runtime::Engine& engine) {
  MOEJIT_TRY_ASSIGN(const auto first, MoeBlock::create(run.sizes, recipe, 10, device, engine));
  MOEJIT_TRY_ASSIGN(const auto second, MoeBlock::create(run.sizes, recipe, 20, device, engine));
  train::Parameter head(static_cast<int64_t>(kLabels) * run.sizes.hidden,
                        1.0 / std::sqrt(static_cast<double>(run.sizes.hidden)), 30);
  std::vector<double> losses;
  for (int64_t step = 0; step < run.steps; ++step) {
    const Batch batch = task.batch(step);
    std::vector<float> h = batch.x;
    MOEJIT_TRY_ASSIGN(const std::vector<float> first_y, first->forward(h));
    add(h, first_y);
    std::vector<float> output = h;
    MOEJIT_TRY_ASSIGN(const std::vector<float> second_y, second->forward(h));
    add(output, second_y);

    const Loss loss = loss_of(output, head.values(), batch.labels);
    losses.push_back(loss.value);

    std::vector<float> gradient = loss.drows;
    MOEJIT_TRY_ASSIGN(const std::vector<float> dh, second->backward(gradient));
    add(gradient, dh);
    MOEJIT_TRY(first->backward(gradient));
    // Falls to nothing, as in real runs: what is left at the end is what was learnt.
    const float rate = run.rate * (1.0f - static_cast<float>(step) / static_cast<float>(run.steps));
    head.update(loss.dweights, rate);
    MOEJIT_TRY(second->update(rate));
    MOEJIT_TRY(first->update(rate));
  }
  return losses;
}

double mean(const std::vector<double>& values, size_t first) {
  double sum = 0.0;
  for (size_t i = first; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - first);
}

// Prints both losses. Returns whether they fell and stayed together.
Result<bool> run_both(const Run& run) {
  MOEJIT_TRY_ASSIGN(const auto device,
                    run.target == "sim" ? runtime::open_simulator() : runtime::open_cuda_device());
  MOEJIT_TRY_ASSIGN(const auto engine, runtime::Engine::create());
  const Task task(run.sizes);
  MOEJIT_TRY_ASSIGN(const auto bf16, train_with("bf16", run, task, *device, *engine));
  MOEJIT_TRY_ASSIGN(const auto fp8, train_with("fp8_flow", run, task, *device, *engine));

  std::printf("%s, %lld tokens a step, hidden %lld, intermediate %lld, %lld experts, top %lld\n",
              device->name().c_str(), static_cast<long long>(run.sizes.tokens),
              static_cast<long long>(run.sizes.hidden),
              static_cast<long long>(run.sizes.intermediate),
              static_cast<long long>(run.sizes.experts), static_cast<long long>(run.sizes.top_k));
  std::printf("%6s %10s %10s %10s\n", "step", "bf16", "fp8_flow", "differ by");
  const size_t stride = std::max<size_t>(1, bf16.size() / 10);
  std::vector<double> deviations;
  for (size_t i = 0; i < bf16.size(); ++i) {
    deviations.push_back(std::fabs(fp8[i] - bf16[i]) / bf16[i]);
    if (i % stride == 0 || i + 1 == bf16.size())
      std::printf("%6zu %10.5f %10.5f %9.3f%%\n", i, bf16[i], fp8[i], 100.0 * deviations[i]);
  }
  const size_t last = bf16.size() - std::max<size_t>(1, bf16.size() / 5);
  const double of_bf16 = mean(bf16, last), of_fp8 = mean(fp8, last);
  std::printf("last %zu steps: bf16 %.5f, fp8_flow %.5f, %.3f%% apart; single steps: ",
              bf16.size() - last, of_bf16, of_fp8, 100.0 * std::fabs(of_fp8 - of_bf16) / of_bf16);
  const double deviation = mean(deviations, last);
  std::printf("mean deviation %.3f%%\n", 100.0 * deviation);
  const bool has_fallen = of_bf16 < bf16[0] && of_fp8 < fp8[0];
  if (!has_fallen) std::fprintf(stderr, "a loss did not fall\n");
  if (!(deviation <= run.limit))
    std::fprintf(stderr, "the losses differ by more than %.3g%%\n", 100.0 * run.limit);
  return has_fallen && deviation <= run.limit;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int index, int64_t otherwise) {
    return argc > index ? static_cast<int64_t>(std::atoll(argv[index])) : otherwise;
  };
  const Run run{.target = argc > 1 ? argv[1] : "cuda",
                .sizes = {.tokens = number(3, 2048),
                          .hidden = number(4, 256),
                          .intermediate = number(5, 256),
                          .experts = 8,
                          .top_k = 2},
                .steps = number(2, 500),
                .limit = argc > 6 ? std::atof(argv[6]) / 100.0 : 0.0025};
  const auto is_good = run_both(run);
  if (!is_good) {
    std::fprintf(stderr, "%s\n", to_string(is_good.error()).c_str());
    return exit_code_of(is_good.error().code);
  }
  return *is_good ? 0 : 1;
}
