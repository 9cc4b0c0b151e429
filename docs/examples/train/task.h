// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "docs/examples/train/moe_block.h"

#include <cstdint>
#include <vector>

namespace train {

// The number of classes that a token may have.
inline constexpr size_t kLabels = 64;

// The tokens of one step and what is to be said of them.
struct Batch {
  std::vector<float> x;        // [tokens, hidden]
  std::vector<size_t> labels;  // [tokens]
};

// What the model learns. Tokens come from clusters, and each has a label drawn from probabilities.
// In each cluster these are another linear function of the token. Experts that specialise have an
// advantage, and the entropy of the labels is what no model gets below.
class Task {
 public:
  explicit Task(const BlockSizes& sizes);

  // Returns the tokens of a step, the same in every run.
  Batch batch(int64_t step) const;

 private:
  size_t tokens_, hidden_;
  std::vector<float> centers_, weights_;
};

// The mean cross entropy of a batch, and its gradients of rows and weights.
struct Loss {
  double value = 0.0;
  std::vector<float> drows, dweights;
};

// Returns the loss of labels [tokens] by logits = rows [tokens, hidden] . weights [labels, hidden].
Loss loss_of(const std::vector<float>& rows, const std::vector<float>& weights,
             const std::vector<size_t>& labels);

}  // namespace train
