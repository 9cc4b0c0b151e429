// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"

#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/chains/chain_runner.h"

#include <cmath>

namespace moejit::testing {
namespace {

using reference::block_count;

class ActivationKernel : public Chains {
 protected:
  struct Activations {
    std::vector<uint16_t> h1;  // [max_rows, 2I], or without a gate [max_rows, I]
    std::vector<float> probs;  // [max_rows]
    reference::Route route;
    int64_t max_rows = 0;
  };

  static Activations random(const reference::LayerShape& layer, int64_t tokens, uint64_t seed) {
    reference::LayerShape shape = layer;
    shape.max_rows = reference::enough_rows(tokens, shape) + shape.alignment;
    const auto ids = reference::random_routing(tokens, shape.experts, shape.top_k, {seed});
    std::vector<float> probs = reference::random_probs(shape.max_rows, 8, seed);
    probs.resize(static_cast<size_t>(shape.max_rows));
    return {.h1 = reference::random_activations(shape.max_rows,
                                                w1_sections(shape) * shape.intermediate, seed),
            .probs = std::move(probs),
            .route = reference::route(ids, tokens, shape),
            .max_rows = shape.max_rows};
  }

  // Scales are equal and codes at most one apart: the sigmoid's last bits differ. (They could
  // decide about a scale whose amax lies on a step; none of these inputs has one.)
  void expect_close(const Activations& in, int64_t experts, int64_t intermediate, int64_t ctas,
                    int64_t sharing = 1, const ActivationCase& activation = {},
                    bool is_interleaved = false) {
    const int64_t blocks = block_count(intermediate);
    const int64_t rows = in.route.rows();
    const auto wanted = reference::activation_quantize(in.h1, in.probs, in.route, intermediate,
                                                       sharing, activation.reference);
    const DeviceBuffer h1 = input(
        "h1", is_interleaved ? reference::interleaved<uint16_t>(in.h1, intermediate, 1) : in.h1);
    const DeviceBuffer probs = input("permuted_probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const DeviceBuffer q = output<uint8_t>("act_q", in.max_rows * intermediate);
    const DeviceBuffer scale_inv = output<float>("act_scale_inv", in.max_rows * blocks);
    const device::RowChainParams params{.input = h1.as<const void>(),
                                        .probs = probs.as<const float>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .rows = in.max_rows};
    const compiler::RowChainSpec spec{.load = activation.reference.has_gate
                                                  ? compiler::LoadStage::kGatedRows
                                                  : compiler::LoadStage::kUpRows,
                                      .transform = compiler::TransformStage::kActivationProbability,
                                      .quantize = quantize_stage(sharing),
                                      .store = compiler::StoreStage::kGroupedRows,
                                      .columns = static_cast<int32_t>(intermediate),
                                      .local_experts = static_cast<int32_t>(experts),
                                      .epsilon = reference::kActivationEps,
                                      .segments_in_flight = 2,  // as planned
                                      .is_interleaved = is_interleaved,
                                      .activation = activation.compiled};
    run(spec, ctas, params, {&h1, &probs, &counts, &offs, &q, &scale_inv});

    const auto got_q = q.download<uint8_t>();
    const auto got_scale_inv = scale_inv.download<float>();
    EXPECT_TRUE(untouched_from(got_q, rows * intermediate));
    EXPECT_TRUE(untouched_from(got_scale_inv, rows * blocks));
    EXPECT_TRUE(matches(compare_f32({"act_scale_inv", blocks}, head(got_scale_inv, rows * blocks),
                                    wanted.scale_inv)));
    EXPECT_TRUE(matches(compare_e4m3_within_one_code({"act_q", intermediate},
                                                     head(got_q, rows * intermediate), wanted.q)));
  }
};

TEST_F(ActivationKernel, IsWithinOneCodeForRowsOfAnyLength) {
  for (const int64_t intermediate : {16, 128, 272, 2048}) {
    SCOPED_TRACE(intermediate);
    const reference::LayerShape shape{
        .experts = 7, .top_k = 2, .intermediate = intermediate, .alignment = 16};
    expect_close(random(shape, 25, 1), 7, intermediate, 3);
  }
}

TEST_F(ActivationKernel, TakesGateAndUpThatAlternate) {
  for (const int64_t intermediate : {16, 144, 272}) {
    SCOPED_TRACE(intermediate);
    const reference::LayerShape shape{
        .experts = 7, .top_k = 2, .intermediate = intermediate, .alignment = 16};
    expect_close(random(shape, 25, 1), 7, intermediate, 3, 1, {}, true);
  }
}

// A row of 272 columns has three blocks, and pad rows begin anywhere.
TEST_F(ActivationKernel, GivesPairsOfBlocksTheScaleOfBoth) {
  for (const int64_t intermediate : {128, 256, 272}) {
    SCOPED_TRACE(intermediate);
    const reference::LayerShape shape{
        .experts = 7, .top_k = 2, .intermediate = intermediate, .alignment = 16};
    for (const int64_t ctas : {1, 3}) expect_close(random(shape, 25, 1), 7, intermediate, ctas, 2);
  }
}

// Row r has the gate or up of each of kKinkValues, alone or beside random ones.
TEST_F(ActivationKernel, IsWithinOneCodeForEveryActivation) {
  reference::LayerShape shape{.experts = 3, .top_k = 1, .intermediate = 272, .alignment = 16};
  for (const ActivationCase& activation : activation_cases()) {
    SCOPED_TRACE(activation.name);
    shape.has_gate = activation.reference.has_gate;
    const size_t columns = shape.has_gate ? 544 : 272, up = columns - 272;
    expect_close(random(shape, 48, 5), 3, 272, 3, 1, activation);
    Activations in = random(shape, 48, 6);
    for (size_t row = 0; row < in.probs.size(); ++row) {
      const uint16_t value = reference::bf16_from_float(kKinkValues[row % kKinkValues.size()]);
      for (size_t i = 0; i < 128; ++i) in.h1[row * columns + i] = value;
      for (size_t i = 128; i < 256; ++i) in.h1[row * columns + up + i] = value;
    }
    expect_close(in, 3, 272, 2, 2, activation);
  }
}

// Columns past the end of a row do not count, and pad rows are zeros, whatever it makes of zeros.
TEST_F(ActivationKernel, LeavesOutWhatIsOutsideOfRows) {
  reference::LayerShape shape{.experts = 7, .top_k = 2, .intermediate = 272, .alignment = 16};
  for (const ActivationCase& activation : cases_not_zero_at_zero()) {
    SCOPED_TRACE(activation.name);
    shape.has_gate = activation.reference.has_gate;
    for (const int64_t sharing : {1, 2})
      expect_close(random(shape, 25, 7), 7, 272, 3, sharing, activation);
  }
}

TEST_F(ActivationKernel, FindsPadRowsForAnyNumberOfCtasAndOrderOfThreads) {
  const reference::LayerShape shape{
      .experts = 160, .top_k = 2, .intermediate = 144, .alignment = 8};
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 5, 200}) {
    open(seed);
    expect_close(random(shape, 60, seed), 160, 144, ctas);
    ++seed;
  }
}

TEST_F(ActivationKernel, SurvivesExtremeGates) {
  const reference::LayerShape shape{.experts = 3, .top_k = 1, .intermediate = 128, .alignment = 16};
  Activations in = random(shape, 48, 4);
  const std::vector<uint16_t> gates{0x0000, 0x8000, 0x42b0, 0xc2b0, 0x42d0, 0xc2d0, 0x4300, 0xc300,
                                    0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x3f80, 0xbf80};
  for (size_t row = 0; row < in.probs.size(); ++row) {
    for (size_t i = 0; i < 128; i += 9) in.h1[row * 256 + i] = gates[(row + i) % 4];
    in.h1[row * 256 + row % 128] = gates[row % gates.size()];
  }
  expect_close(in, 3, 128, 2);
}

// A gate of 128 has the sigmoid 1, so that y is the probability, bit for bit: an amax may be any
// fp32 number. Here they are 448 * 2^k and its neighbours, down to below epsilon.
TEST_F(ActivationKernel, FindsTheScaleOfAnAmaxBesideAStep) {
  Activations in;
  for (int k = -60; k <= 20; ++k) {
    const float step = std::ldexp(1.75f, k);
    for (const float prob : {std::nextafterf(step, 0.0f), step, std::nextafterf(step, 1e30f)}) {
      in.probs.push_back(prob);
    }
  }
  in.max_rows = static_cast<int64_t>(in.probs.size());
  in.route = {.counts = {static_cast<int32_t>(in.max_rows)},
              .offs = {0, static_cast<int32_t>(in.max_rows)}};
  for (int64_t row = 0; row < in.max_rows; ++row) {
    in.h1.insert(in.h1.end(), 16, 0x4300);  // 128
    in.h1.insert(in.h1.end(), 16, 0x3c00);  // 2^-7
  }
  expect_close(in, 1, 16, 2);
}

TEST_F(ActivationKernel, TakesNoRows) {
  const reference::LayerShape shape{.experts = 7, .top_k = 2, .intermediate = 272, .alignment = 16};
  expect_close(random(shape, 0, 1), 7, 272, 2);
}

}  // namespace
}  // namespace moejit::testing
