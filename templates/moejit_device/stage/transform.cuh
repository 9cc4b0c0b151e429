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

// An activation of lane values `i`: gate and up, or up alone. Pad rows and columns outside the row
// have zeros, and become zeros: what does not do that by itself is set to them.
template <typename Activation>
struct ActivationInside {
  // Times the row's probability.
  template <typename... Inputs>
  MOEJIT_DEVICE static float value(const ExistingRuns& exists, int32_t i, float prob,
                                   Inputs... inputs) {
    const float value = ptx::multiply(Activation::value(inputs...), prob);
    return counts(exists, i) ? value : 0.0f;
  }
  // `inputs` end with the gradient of the value; `dprob` is the probability's so far.
  template <typename... Inputs>
  MOEJIT_DEVICE static ActivationGradients gradients(const ExistingRuns& exists, int32_t i,
                                                     float dprob, Inputs... inputs) {
    const ActivationGradients outside = {.gate = 0.0f, .up = 0.0f, .dprob = dprob};
    return counts(exists, i) ? Activation::gradients(inputs..., dprob) : outside;
  }

 private:
  MOEJIT_DEVICE static bool counts(const ExistingRuns& exists, int32_t i) {
    return Activation::kIsZeroAtZero || exists.has(i);
  }
};

// The activation times the row's probability.
template <typename Activation>
struct TransformActivationProbability {
  MOEJIT_DEVICE static ValueSegment apply(const GatedSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.gate);
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      result.value[i] = ActivationInside<Activation>::value(segment.exists, i, segment.prob,
                                                            gate.value[i], up.value[i]);
    }
    return result;
  }
  // Transforms up alone.
  MOEJIT_DEVICE static ValueSegment apply(const UpSegment& segment) {
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      result.value[i] =
          ActivationInside<Activation>::value(segment.exists, i, segment.prob, up.value[i]);
    }
    return result;
  }
};

// Makes the gradient of activation times probability: the gradients of gate and up, which the
// quantize stage multiplies with the probability, and a lane's part of the probability's gradient,
// its columns in ascending order.
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
      const ActivationGradients of = ActivationInside<Activation>::gradients(
          segment.forward.exists, i, result.dprob, gate.value[i], up.value[i], gradient.value[i]);
      result.gate.value[i] = of.gate;
      result.up.value[i] = of.up;
      result.dprob = of.dprob;
    }
    return result;
  }
  // Returns the gradient of up alone.
  MOEJIT_DEVICE static UpGradient apply(const UpGradientSegment& segment) {
    const ValueSegment up = unpack_bf16(segment.forward.up);
    const ValueSegment gradient = unpack_bf16(segment.gradient);
    UpGradient result;
    result.prob = segment.forward.prob;
    result.dprob = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      const ActivationGradients of = ActivationInside<Activation>::gradients(
          segment.forward.exists, i, result.dprob, up.value[i], gradient.value[i]);
      result.up.value[i] = of.up;
      result.dprob = of.dprob;
    }
    return result;
  }
};

}  // namespace moejit::device
