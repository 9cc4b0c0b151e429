// SPDX-License-Identifier: Apache-2.0
#include "docs/examples/train/task.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace train {
namespace {

constexpr size_t kClusters = 8;

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

}  // namespace

Task::Task(const BlockSizes& sizes)
    : tokens_(static_cast<size_t>(sizes.tokens)), hidden_(static_cast<size_t>(sizes.hidden)) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  centers_.resize(kClusters * hidden_);
  for (float& value : centers_) value = normal(random);
  weights_.resize(kClusters * kLabels * hidden_);
  const float deviation = 2.0f / std::sqrt(static_cast<float>(hidden_));
  for (float& value : weights_) value = deviation * normal(random);
}

Batch Task::batch(int64_t step) const {
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

}  // namespace train
