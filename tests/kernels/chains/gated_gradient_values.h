// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/gated_gradient_cases.h"

namespace moejit::testing {

// A fixture: what the row chains that round to bf16 store of the gradient of a gated activation,
// and of the activation. Halves of dh1 have `pitch` columns.
class GatedGradientChains : public Chains {
 protected:
  using Inputs = GatedGradientInputs;

  // Values in bf16: dh1 [owned, 2 * pitch] and act [owned, columns].
  struct Values {
    std::vector<uint16_t> dh1, act;
    std::vector<float> dprobs;
  };

  // Returns what the row chains store.
  Values values_of(const Inputs& in, int64_t pitch) {
    const int64_t blocks = reference::block_count(in.columns);
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer dh1 = output<uint16_t>("dh1", in.owned() * 2 * pitch);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.owned() * blocks);
    const DeviceBuffer act = output<uint16_t>("act", in.owned() * in.columns);
    device::RowChainParams params{.input = up.h1.as<const void>(),
                                  .gradient = up.dact.as<const void>(),
                                  .probs = up.probs.as<const float>(),
                                  .counts = up.counts.as<const int32_t>(),
                                  .offs = up.offs.as<const int32_t>(),
                                  .output = dh1.as<void>(),
                                  .output_dprobs = dprobs.as<float>(),
                                  .rows = in.rows};
    compiler::RowChainSpec spec{.load = compiler::LoadStage::kGatedGradientRows,
                                .transform = compiler::TransformStage::kActivationBackward,
                                .quantize = compiler::QuantizeStage::kNone,
                                .store = compiler::StoreStage::kGroupedGatedRows,
                                .columns = static_cast<int32_t>(in.columns),
                                .local_experts = static_cast<int32_t>(in.groups.counts.size()),
                                .segments_in_flight = 1,
                                .pitch = pitch == in.columns ? 0 : static_cast<int32_t>(pitch),
                                .activation = in.activation};
    run(spec, 3, params, {&up.h1, &up.dact, &up.probs, &up.counts, &up.offs, &dh1, &dprobs});
    spec.load = compiler::LoadStage::kGatedRows;
    spec.transform = compiler::TransformStage::kActivationProbability;
    spec.store = compiler::StoreStage::kGroupedRows;
    spec.pitch = 0;
    params.gradient = nullptr;
    params.output = act.as<void>();
    params.output_dprobs = nullptr;
    run(spec, 3, params, {&up.h1, &up.probs, &up.counts, &up.offs, &act});
    return {dh1.download<uint16_t>(), act.download<uint16_t>(), dprobs.download<float>()};
  }

  UploadedGatedGradient upload(const Inputs& in) {
    return {in, [this](const char* name, const auto& values) { return input(name, values); }};
  }
};

}  // namespace moejit::testing
