// SPDX-License-Identifier: Apache-2.0
#pragma once

// The quantize stage of tiles whose expert's scales are known beforehand: values are rounded to
// bf16 and cast to FP8, rows and columns alike, so that a transposed tile has the bytes of its
// rows. The row chains that cast give the same codes (stage/store_cast.cuh).

#include "moejit_device/cast/cast_input.cuh"
#include "moejit_device/cast/raise_amax.cuh"
#include "moejit_device/core/row_scaled.cuh"
#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/stage/max_of_cta.cuh"

namespace moejit::device {

// The format of gradients that nobody wants.
struct GradientIsDropped {
  static constexpr bool kIsDropped = true;
};

// Casts the activation to e4m3 and the gradients of gate and up to Format. Amax tells which column
// of the state params.amax is raised to the largest magnitude of the gradients, before they are
// scaled (cast/raise_amax.cuh). Without gradients there need be no expert_scales.
template <typename Format, typename Amax = NoColumn>
class CastOfExpert {
 public:
  static constexpr bool kKeepsBytes = true;
  static constexpr int32_t kSegmentsPerScale = 1;

  MOEJIT_DEVICE CastOfExpert(const GatedGradientParams& params, int32_t expert)
      : act_scale_(ptx::load(ptx::global(params.act_expert_scales) + expert)) {
    if constexpr (!kDropsGradient) {
      gradient_scale_ = ptx::load(ptx::global(params.expert_scales) + expert);
    }
  }

  MOEJIT_DEVICE CodesSegment apply(const ValueSegment& act) {
    return {.bytes = Bf16Input::cast<E4m3>(pack_bf16(act), act_scale_)};
  }
  MOEJIT_DEVICE CodesGatedGradient apply(const GatedGradient& gradient) {
    const Bf16GatedGradient rounded = round_gated_gradient(gradient);
    if constexpr (kDropsGradient) {
      return {.gate = {}, .up = {}, .dprob = rounded.dprob};
    } else {
      if constexpr (Amax::kIsRecorded) amax_ = ptx::max_number(amax_, magnitude_of_lane(rounded));
      return {.gate = Bf16Input::cast<Format>(rounded.gate, gradient_scale_),
              .up = Bf16Input::cast<Format>(rounded.up, gradient_scale_),
              .dprob = rounded.dprob};
    }
  }
  // Records what the CTA's kWarps warps have seen. Is called by all threads, and passes a barrier.
  template <int32_t kWarps>
  MOEJIT_DEVICE void finish(const GatedGradientParams& params, int32_t expert,
                            ptx::SharedPtr<float> slots) const {
    if constexpr (Amax::kIsRecorded) {
      const float amax = max_of_cta<kWarps>(slots, amax_);
      if (ptx::thread_index() == 0) Amax::raise(params.amax, expert, amax);
    } else {
      ptx::sync_cta();
    }
  }

 private:
  static constexpr bool kDropsGradient = requires { Format::kIsDropped; };

  float gradient_scale_ = 0.0f;
  float act_scale_;
  float amax_ = 0.0f;  // of this lane's gradients so far
};

}  // namespace moejit::device
