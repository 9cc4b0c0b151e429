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

// The activation times the row's probability.
template <typename Activation>
struct TransformActivationProbability {
  MOEJIT_DEVICE static ValueSegment apply(const GatedSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.gate);
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      result.value[i] = ptx::multiply(Activation::value(gate.value[i], up.value[i]), segment.prob);
    }
    return result;
  }
  // Of up alone.
  MOEJIT_DEVICE static ValueSegment apply(const UpSegment& segment) {
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      result.value[i] = ptx::multiply(Activation::value(up.value[i]), segment.prob);
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
          Activation::gradients(gate.value[i], up.value[i], gradient.value[i], result.dprob);
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
          Activation::gradients(up.value[i], gradient.value[i], result.dprob);
      result.up.value[i] = of.up;
      result.dprob = of.dprob;
    }
    return result;
  }
};

}  // namespace moejit::device
