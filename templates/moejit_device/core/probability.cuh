// SPDX-License-Identifier: Apache-2.0
#pragma once

// The caller's probabilities and their gradients in memory: fp32 or bf16. Kernels compute in fp32.

#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_DEVICE float load_prob(ptx::GlobalPtr<const float> from) { return ptx::load(from); }
MOEJIT_DEVICE float load_prob(ptx::GlobalPtr<const Bf16> from) {
  return ptx::float_from_bf16_low(ptx::load(ptx::as<const uint16_t>(from)));
}

// bf16 is rounded to nearest even.
MOEJIT_DEVICE void store_prob(ptx::GlobalPtr<float> to, float value) { ptx::store(to, value); }
MOEJIT_DEVICE void store_prob(ptx::GlobalPtr<Bf16> to, float value) {
  ptx::store(ptx::as<uint16_t>(to), static_cast<uint16_t>(ptx::bf16_pair(value, 0.0f)));
}

}  // namespace moejit::device
