// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/shared.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <iterator>

namespace moejit::check {
namespace {

// Compares gradients, which are rounded once if they are bf16.
void check_probabilities(std::string_view role, const std::vector<float>& wanted,
                         const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has(role)) return;
  if (tensors.at(role).dtype == compiler::DType::kF32) return list.floats(tensors, role, wanted);
  std::vector<uint16_t> rounded;
  std::ranges::transform(wanted, std::back_inserter(rounded), reference::bf16_from_float);
  list.bf16(tensors, role, rounded);
}

}  // namespace

// A rank of a group is not known here: plans of one rank alone are checked.
void check_kernel(const compiler::SharedChoicesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  const reference::SharedShape shape{
      .rank_experts = spec.rank_experts, .top_k = spec.top_k, .shared = spec.shared};
  std::vector<float> shared;
  if (spec.has_gate) shared = trial::probabilities(tensors.at("shared_probs"));
  const reference::AllChoices wanted =
      append_shared(shape, 0, trial::expert_ids(tensors.at("topk_ids")),
                    trial::probabilities(tensors.at("topk_probs")), shared);
  list.integers(tensors, "all_ids", wanted.ids);
  list.floats(tensors, "all_probs", wanted.probs);
}

void check_kernel(const compiler::SharedDprobsSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("all_dprobs")) return;
  const reference::PartedDprobs wanted = reference::part_dprobs(
      {.top_k = spec.top_k, .shared = spec.shared}, tensors.view<float>("all_dprobs"));
  check_probabilities("dprobs", wanted.dprobs, tensors, list);
  check_probabilities("dshared_probs", wanted.dshared_probs, tensors, list);
}

}  // namespace moejit::check
