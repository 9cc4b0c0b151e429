// SPDX-License-Identifier: Apache-2.0
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/reference/activation_gradient.h"
#include "tests/support/reference/number_formats.h"
#include "tests/support/reference/random_inputs.h"

#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using reference::bf16_from_float;
using reference::block_count;
using reference::LayerShape;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SwigluBackwardKernel : public Chains {
 protected:
  struct Gradients {
    int64_t intermediate = 0;
    std::vector<uint16_t> h1;    // [max_rows, 2I]
    std::vector<uint16_t> dact;  // [max_rows, I]
    std::vector<float> probs;    // [max_rows]
    reference::Route route;
    int64_t max_rows = 0;

    void set(int64_t row, int64_t column, float gate, float up, float gradient) {
      h1[row * 2 * intermediate + column] = bf16_from_float(gate);
      h1[(row * 2 + 1) * intermediate + column] = bf16_from_float(up);
      dact[row * intermediate + column] = bf16_from_float(gradient);
    }
  };
  struct Results {
    std::vector<uint8_t> q;
    std::vector<float> scale_inv;
    std::vector<float> dprobs;
    bool operator==(const Results&) const = default;
  };

  // Rows of groups that have `counts` of them. What pad rows and the rows behind hold is NaN.
  static Gradients random(std::vector<int32_t> counts, int64_t intermediate, uint64_t seed) {
    constexpr int32_t kAlignment = 16;
    Gradients in{.intermediate = intermediate};
    in.route.offs.push_back(0);
    for (const int32_t count : counts) {
      const int32_t aligned = (count + kAlignment - 1) / kAlignment * kAlignment;
      in.route.offs.push_back(in.route.offs.back() + aligned);
    }
    in.route.counts = std::move(counts);
    in.max_rows = in.route.rows() + 3;
    in.h1 = reference::random_activations(in.max_rows, 2 * intermediate, seed);
    in.dact = reference::random_activations(in.max_rows, intermediate, seed + 1);
    in.probs = reference::random_probs(in.max_rows, 8, seed);
    in.probs.resize(static_cast<size_t>(in.max_rows));
    const auto is_real = reference::real_rows(in.route);
    for (int64_t row = 0; row < in.max_rows; ++row) {
      if (row < in.route.rows() && is_real[row] != 0) continue;
      for (int64_t i = 0; i < intermediate; ++i) in.set(row, i, kNan, kNan, kNan);
      in.probs[row] = kNan;
    }
    return in;
  }

  Results run_on(const Gradients& in, int64_t ctas, int64_t sharing = 1) {
    const int64_t blocks = block_count(in.intermediate);
    const DeviceBuffer h1 = input("h1", in.h1);
    const DeviceBuffer dact = input("dact", in.dact);
    const DeviceBuffer probs = input("permuted_probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const DeviceBuffer q = output<uint8_t>("dh1_q", in.max_rows * 2 * in.intermediate);
    const DeviceBuffer scale_inv = output<float>("dh1_scale_inv", in.max_rows * 2 * blocks);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.max_rows * blocks);
    const device::RowChainParams params{.input = h1.as<const void>(),
                                        .gradient = dact.as<const void>(),
                                        .probs = probs.as<const float>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .output_dprobs = dprobs.as<float>(),
                                        .rows = in.max_rows};
    const compiler::RowChainSpec spec{.load = compiler::LoadStage::kGatedGradientRows,
                                      .transform = compiler::TransformStage::kSwigluBackward,
                                      .quantize = quantize_stage(sharing),
                                      .store = compiler::StoreStage::kGroupedGatedRows,
                                      .columns = static_cast<int32_t>(in.intermediate),
                                      .local_experts = static_cast<int32_t>(in.route.counts.size()),
                                      .epsilon = reference::kActivationEps,
                                      .segments_in_flight = 1};
    run(spec, ctas, params, {&h1, &dact, &probs, &counts, &offs, &q, &scale_inv, &dprobs});
    const int64_t rows = in.route.rows();
    EXPECT_TRUE(untouched_from(q.download<uint8_t>(), rows * 2 * in.intermediate));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), rows * 2 * blocks));
    EXPECT_TRUE(untouched_from(dprobs.download<float>(), rows * blocks));
    return {.q = head(q.download<uint8_t>(), rows * 2 * in.intermediate),
            .scale_inv = head(scale_inv.download<float>(), rows * 2 * blocks),
            .dprobs = head(dprobs.download<float>(), rows * blocks)};
  }

  // Scales are equal and codes at most one apart: the sigmoid's last bits differ. (They could
  // decide about a scale whose amax lies on a step; none of these inputs has one.)
  void expect_close(const Gradients& in, int64_t ctas, int64_t sharing = 1) {
    const auto wanted = reference::swiglu_backward_quantize(in.h1, in.dact, in.probs, in.route,
                                                            in.intermediate, sharing);
    const int64_t blocks = block_count(in.intermediate);
    const Results got = run_on(in, ctas, sharing);
    EXPECT_TRUE(
        matches(compare_f32({"dh1_scale_inv", 2 * blocks}, got.scale_inv, wanted.scale_inv)));
    EXPECT_TRUE(
        matches(compare_e4m3_within_one_code({"dh1_q", 2 * in.intermediate}, got.q, wanted.q)));
    EXPECT_TRUE(matches(compare_f32_within({"dprobs_blocks", blocks}, got.dprobs,
                                           wanted.dprobs_blocks, wanted.dprobs_bounds)));
  }
};

TEST_F(SwigluBackwardKernel, IsWithinOneCodeForRowsOfAnyLength) {
  for (const int64_t intermediate : {16, 128, 176, 272, 2048, 2880}) {
    SCOPED_TRACE(intermediate);
    expect_close(random({0, 3, 17, 0, 16, 1, 0}, intermediate, 1), 3);
  }
}

}  // namespace
}  // namespace moejit::testing
