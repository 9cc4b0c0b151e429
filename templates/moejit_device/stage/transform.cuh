// SPDX-License-Identifier: Apache-2.0
#pragma once

// Transform stages: values in registers to values in registers.

#include "moejit_device/core/gated_gradient.cuh"
#include "moejit_device/core/math.cuh"
#include "moejit_device/core/up_gradient.cuh"
#include "moejit_device/stage/load.cuh"

namespace moejit::device {

struct TransformIdentity {
  template <typename Segment>
  MOEJIT_DEVICE static Segment apply(const Segment& segment) {
    return segment;
  }
};

namespace detail {
// Whether lane value `i` may be what the activation makes of it. Pad rows and columns outside the
// row have zeros, and become zeros: an activation which does not do that by itself is set to them.
template <typename Activation>
MOEJIT_DEVICE bool counts(const ExistingRuns& exists, int32_t i) {
  return Activation::kIsZeroAtZero || exists.has(i);
}
}  // namespace detail

// The activation times the row's probability.
template <typename Activation>
struct TransformActivationProbability {
  MOEJIT_DEVICE static ValueSegment apply(const GatedSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.gate);
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      const float value = Activation::value(gate.value[i], up.value[i]);
      result.value[i] =
          detail::counts<Activation>(segment.exists, i) ? ptx::multiply(value, segment.prob) : 0.0f;
    }
    return result;
  }
  // Of up alone.
  MOEJIT_DEVICE static ValueSegment apply(const UpSegment& segment) {
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      const float value = Activation::value(up.value[i]);
      result.value[i] =
          detail::counts<Activation>(segment.exists, i) ? ptx::multiply(value, segment.prob) : 0.0f;
    }
    return result;
  }
};

// The gradient of activation times probability: those of gate and up, which the quantize stage
// multiplies with the probability, and a lane's part of the probability's, its columns in ascending
// order.
template <typename Activation>
struct TransformActivationBackward {
  MOEJIT_DEVICE static GatedGradient apply(const GatedGradientSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.forward.gate);
    const ValueSegment up = unpack_bf16(segment.forward.up);
    const ValueSegment gradient = unpack_bf16(segment.gradient);
    GatedGradient result;
    result.prob = segment.forward.prob;
    result.dprob = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      const ActivationGradients of =
          detail::counts<Activation>(segment.forward.exists, i)
              ? Activation::gradients(gate.value[i], up.value[i], gradient.value[i], result.dprob)
              : ActivationGradients{.gate = 0.0f, .up = 0.0f, .dprob = result.dprob};
      result.gate.value[i] = of.gate;
      result.up.value[i] = of.up;
      result.dprob = of.dprob;
    }
    return result;
  }
  // Of up alone.
  MOEJIT_DEVICE static UpGradient apply(const UpGradientSegment& segment) {
    const ValueSegment up = unpack_bf16(segment.forward.up);
    const ValueSegment gradient = unpack_bf16(segment.gradient);
    UpGradient result;
    result.prob = segment.forward.prob;
    result.dprob = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      const ActivationGradients of =
          detail::counts<Activation>(segment.forward.exists, i)
              ? Activation::gradients(up.value[i], gradient.value[i], result.dprob)
              : ActivationGradients{.gate = 0.0f, .up = 0.0f, .dprob = result.dprob};
      result.up.value[i] = of.up;
      result.dprob = of.dprob;
    }
    return result;
  }
};

}  // namespace moejit::device
