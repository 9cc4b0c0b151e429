// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// The experts of a group of ranks with n shared experts on each. With one rank it is a layer's.
struct SharedShape {
  std::int64_t ranks = 1;
  std::int64_t rank_experts = 0;  // of each rank, without shared ones
  std::int64_t top_k = 0;         // K
  std::int64_t shared = 0;        // n
};

// Choices of experts that are numbered with the shared ones. The experts of rank r begin at
// r * (rank_experts + n), and the shared ones are the last n of them.
struct AllChoices {
  std::vector<std::int32_t> ids;  // [T, K + n]
  std::vector<float> probs;       // [T, K + n]
};

// Appends the shared experts of a rank to the choices of its tokens. Id -1 stays, lower ones become
// -2, and higher ones than experts become the number of all experts. `shared_probs` [T] are the
// shared experts' probabilities; empty: 1.
AllChoices append_shared(const SharedShape& shape, std::int64_t rank,
                         std::span<const std::int64_t> topk_ids, std::span<const float> topk_probs,
                         std::span<const float> shared_probs);

// The gradients of probabilities that callers gave.
struct PartedDprobs {
  std::vector<float> dprobs;         // [T, K]
  std::vector<float> dshared_probs;  // [T]: the fp32 sum over shared experts, in ascending order
};

// Parts the gradients [T, K + n] of all choices.
PartedDprobs part_dprobs(const SharedShape& shape, std::span<const float> all_dprobs);

}  // namespace moejit::reference
