// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/shared.h"

namespace moejit::reference {

AllChoices append_shared(const SharedShape& shape, std::int64_t rank,
                         std::span<const std::int64_t> topk_ids, std::span<const float> topk_probs,
                         std::span<const float> shared_probs) {
  const std::int64_t held = shape.rank_experts + shape.shared;
  const std::int64_t tokens = std::ssize(topk_ids) / shape.top_k;
  AllChoices all;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t choice = token * shape.top_k; choice < (token + 1) * shape.top_k; ++choice) {
      const std::int64_t id = topk_ids[choice];
      std::int64_t number = -1;
      if (id < -1) number = -2;
      if (id >= 0) number = shape.ranks * held;
      if (id >= 0 && id < shape.ranks * shape.rank_experts)
        number = id + id / shape.rank_experts * shape.shared;
      all.ids.push_back(static_cast<std::int32_t>(number));
      all.probs.push_back(topk_probs[choice]);
    }
    for (std::int64_t i = 0; i < shape.shared; ++i) {
      all.ids.push_back(static_cast<std::int32_t>(rank * held + shape.rank_experts + i));
      all.probs.push_back(shared_probs.empty() ? 1.0F : shared_probs[token]);
    }
  }
  return all;
}

PartedDprobs part_dprobs(const SharedShape& shape, std::span<const float> all_dprobs) {
  PartedDprobs parted;
  const std::int64_t all = shape.top_k + shape.shared;
  for (std::int64_t first = 0; first < std::ssize(all_dprobs); first += all) {
    for (std::int64_t k = 0; k < shape.top_k; ++k) parted.dprobs.push_back(all_dprobs[first + k]);
    float sum = 0.0F;
    for (std::int64_t i = shape.top_k; i < all; ++i) sum += all_dprobs[first + i];
    parted.dshared_probs.push_back(sum);
  }
  return parted;
}

}  // namespace moejit::reference
