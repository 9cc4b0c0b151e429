// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/weight_digest.h"

namespace moejit::check {

using runtime::copy_elements;

// Checks the digest alone: a cast is checked by what it writes.
void check_kernel(const compiler::WeightCheckSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("w1") || !tensors.has("w2") || !tensors.has("digest")) return;
  const std::vector<uint32_t> digest = reference::weight_digest(
      tensors.view<uint16_t>("w1"), tensors.view<uint16_t>("w2"), spec.window_probes);
  // The words before the digest tell about the last launch.
  std::vector<int32_t> wanted = copy_elements<int32_t>(tensors.at("digest"));
  const size_t header = wanted.size() - std::min(digest.size(), wanted.size());
  for (size_t i = header; i < wanted.size(); ++i)
    wanted[i] = static_cast<int32_t>(digest[i - header]);
  list.integers(tensors, "digest", wanted);
}

}  // namespace moejit::check
