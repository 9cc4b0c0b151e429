// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/special_values.h"

#include <algorithm>
#include <cmath>

namespace moejit::testing {
namespace {

using reference::bf16_from_float;
using reference::block_count;

class ActivationBackwardKernel : public Chains {
 protected:
  struct Gradients {
    int64_t intermediate = 0;
    std::vector<uint16_t> h1;    // [max_rows, 2I], or without a gate [max_rows, I]
    std::vector<uint16_t> dact;  // [max_rows, I]
    std::vector<float> probs;    // [max_rows]
    reference::Route route;
    int64_t max_rows = 0;
    bool has_gate = true;

    int64_t h1_columns() const { return has_gate ? 2 * intermediate : intermediate; }
    void set(int64_t row, int64_t column, float gate, float up, float gradient) {
      if (has_gate) h1[row * h1_columns() + column] = bf16_from_float(gate);
      h1[(row + 1) * h1_columns() - intermediate + column] = bf16_from_float(up);
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
  static Gradients random(std::vector<int32_t> counts, int64_t intermediate, uint64_t seed,
                          bool has_gate = true) {
    constexpr int32_t kAlignment = 16;
    Gradients in{.intermediate = intermediate};
    in.has_gate = has_gate;
    in.route.offs.push_back(0);
    for (const int32_t count : counts) {
      const int32_t aligned = (count + kAlignment - 1) / kAlignment * kAlignment;
      in.route.offs.push_back(in.route.offs.back() + aligned);
    }
    in.route.counts = std::move(counts);
    in.max_rows = in.route.rows() + 3;
    in.h1 = reference::random_activations(in.max_rows, in.h1_columns(), seed);
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

  Results run_on(const Gradients& in, int64_t ctas, int64_t sharing = 1,
                 const compiler::Activation& activation = {}) {
    const int64_t blocks = block_count(in.intermediate);
    const int64_t scales = in.has_gate ? 2 * blocks : blocks;  // of a row
    const DeviceBuffer h1 = input("h1", in.h1);
    const DeviceBuffer dact = input("dact", in.dact);
    const DeviceBuffer probs = input("permuted_probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const DeviceBuffer q = output<uint8_t>("dh1_q", in.max_rows * in.h1_columns());
    const DeviceBuffer scale_inv = output<float>("dh1_scale_inv", in.max_rows * scales);
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
    const compiler::RowChainSpec spec{.load = in.has_gate ? compiler::LoadStage::kGatedGradientRows
                                                          : compiler::LoadStage::kUpGradientRows,
                                      .transform = compiler::TransformStage::kActivationBackward,
                                      .quantize = quantize_stage(sharing),
                                      .store = in.has_gate ? compiler::StoreStage::kGroupedGatedRows
                                                           : compiler::StoreStage::kGroupedUpRows,
                                      .columns = static_cast<int32_t>(in.intermediate),
                                      .local_experts = static_cast<int32_t>(in.route.counts.size()),
                                      .epsilon = reference::kActivationEps,
                                      .segments_in_flight = 1,
                                      .activation = activation};
    run(spec, ctas, params, {&h1, &dact, &probs, &counts, &offs, &q, &scale_inv, &dprobs});
    const int64_t rows = in.route.rows();
    EXPECT_TRUE(untouched_from(q.download<uint8_t>(), rows * in.h1_columns()));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), rows * scales));
    EXPECT_TRUE(untouched_from(dprobs.download<float>(), rows * blocks));
    return {.q = head(q.download<uint8_t>(), rows * in.h1_columns()),
            .scale_inv = head(scale_inv.download<float>(), rows * scales),
            .dprobs = head(dprobs.download<float>(), rows * blocks)};
  }

  // Scales are equal and codes at most one apart: the sigmoid's last bits differ. (They could
  // decide about a scale whose amax lies on a step; none of these inputs has one.)
  void expect_close(const Gradients& in, int64_t ctas, int64_t sharing = 1,
                    const ActivationCase& activation = {}) {
    const auto wanted = reference::activation_backward_quantize(
        in.h1, in.dact, in.probs, in.route, in.intermediate, sharing, activation.reference);
    const int64_t blocks = block_count(in.intermediate);
    const Results got = run_on(in, ctas, sharing, activation.compiled);
    EXPECT_TRUE(matches(compare_f32({"dh1_scale_inv", in.has_gate ? 2 * blocks : blocks},
                                    got.scale_inv, wanted.scale_inv)));
    EXPECT_TRUE(matches(compare_e4m3_within_one_code({"dh1_q", in.h1_columns()}, got.q, wanted.q)));
    EXPECT_TRUE(matches(compare_f32_within({"dprobs_blocks", blocks}, got.dprobs,
                                           wanted.dprobs_blocks, wanted.dprobs_bounds)));
  }
};

const std::vector<int32_t> kActivationCounts{0,  3, 17, 0,
                                             16, 1, 0};  // groups without rows, and pad rows

TEST_F(ActivationBackwardKernel, IsWithinOneCodeForRowsOfAnyLength) {
  for (const int64_t intermediate : {16, 128, 176, 272, 2048, 2880}) {
    SCOPED_TRACE(intermediate);
    expect_close(random(kActivationCounts, intermediate, 1), 3);
  }
}

// A half of 272 columns has three blocks, the last of which stands alone.
TEST_F(ActivationBackwardKernel, GivesPairsOfBlocksOfEachHalfTheScaleOfBoth) {
  for (const int64_t intermediate : {128, 256, 272}) {
    SCOPED_TRACE(intermediate);
    for (const int64_t ctas : {1, 3})
      expect_close(random(kActivationCounts, intermediate, 2), ctas, 2);
  }
}

TEST_F(ActivationBackwardKernel, IsWithinOneCodeForEveryActivation) {
  for (const ActivationCase& activation : activation_cases()) {
    SCOPED_TRACE(activation.name);
    const bool has_gate = activation.reference.has_gate;
    expect_close(random(kActivationCounts, 272, 11, has_gate), 3, 1, activation);
    Gradients in = random({48}, 272, 12, has_gate);
    for (int64_t row = 0; row < 48; ++row) {
      const float value = kKinkValues[static_cast<size_t>(row) % kKinkValues.size()];
      const int64_t first = row * in.h1_columns(), up = in.h1_columns() - 272;
      for (int64_t i = 0; i < 128; ++i)
        in.h1[first + i] = in.h1[first + up + 128 + i] = bf16_from_float(value);
    }
    expect_close(in, 2, 2, activation);
  }
}

// Columns past the end of a row do not count, and pad rows are zeros, whatever it makes of zeros.
TEST_F(ActivationBackwardKernel, LeavesOutWhatIsOutsideOfRows) {
  for (const ActivationCase& activation : cases_not_zero_at_zero()) {
    SCOPED_TRACE(activation.name);
    for (const int64_t sharing : {1, 2})
      expect_close(random({3, 0, 17, 1}, 272, 20, activation.reference.has_gate), 3, sharing,
                   activation);
  }
}

TEST_F(ActivationBackwardKernel, GivesEqualBitsForAnyNumberOfCtasAndOrderOfThreads) {
  const Gradients in = random({0, 3, 40, 1, 16}, 272, 3);
  const Results first = run_on(in, 1);
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 5, 200}) {
    open(seed++);
    EXPECT_TRUE(run_on(in, ctas) == first) << ctas << " CTAs";
  }
}

TEST_F(ActivationBackwardKernel, GivesARowTheSameBitsWhereverItLies) {
  constexpr int64_t kIntermediate = 176, kRows = 16;
  const Gradients in = random({kRows}, kIntermediate, 4);
  Gradients moved = random({3, 16, kRows}, kIntermediate, 5);
  const int64_t first = moved.route.offs[2];
  std::copy_n(in.h1.begin(), kRows * 2 * kIntermediate,
              moved.h1.begin() + first * 2 * kIntermediate);
  std::copy_n(in.dact.begin(), kRows * kIntermediate, moved.dact.begin() + first * kIntermediate);
  std::copy_n(in.probs.begin(), kRows, moved.probs.begin() + first);

  const Results wanted = run_on(in, 1);
  Results got = run_on(moved, 3);
  got.q.erase(got.q.begin(), got.q.begin() + first * 2 * kIntermediate);
  got.scale_inv.erase(got.scale_inv.begin(), got.scale_inv.begin() + first * 4);
  got.dprobs.erase(got.dprobs.begin(), got.dprobs.begin() + first * 2);
  EXPECT_TRUE(got == wanted);
}

// Gates whose sigmoid is 0, 1/2 or 1 leave nothing but the rounding of the product with the
// probability: every bit is known.
TEST_F(ActivationBackwardKernel, IsExactWhereTheSigmoidIs) {
  const std::vector<float> gates{0.0f, -0.0f, 104.0f, 128.0f, 0x1p90f, -104.0f, -128.0f, -1e10f};
  for (const int64_t sharing : {1, 2}) {
    Gradients in = random(kActivationCounts, 272, 6);
    for (int64_t row = 0; row < in.route.rows(); ++row) {
      for (int64_t i = 0; i < 272; ++i)
        in.h1[row * 544 + i] = bf16_from_float(gates[(row * 31 + i) % (row % 2 == 0 ? 8 : 4)]);
    }
    const auto wanted =
        reference::activation_backward_quantize(in.h1, in.dact, in.probs, in.route, 272, sharing);
    const Results got = run_on(in, 2, sharing);
    EXPECT_TRUE(matches(compare_f32({"dh1_scale_inv", 6}, got.scale_inv, wanted.scale_inv)));
    EXPECT_TRUE(matches(compare_e4m3({"dh1_q", 544}, got.q, wanted.q)));
  }
}

// A gate of 128 has the sigmoid 1, and u * up is exact. Lane l of a block has the columns
// [8l, 8l + 8) and [64 + 8l, 72 + 8l); the last block has 48 columns.
TEST_F(ActivationBackwardKernel, AddsInTheStatedOrder) {
  constexpr int64_t kIntermediate = 176;
  Gradients in = random({5}, kIntermediate, 7);
  const Results got = [&] {
    for (int64_t i = 0; i < 5 * kIntermediate; ++i)
      in.h1[i / kIntermediate * 2 * kIntermediate + i % kIntermediate] = bf16_from_float(128.0f);
    return run_on(in, 1);
  }();
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t block = 0; block < 2; ++block) {
      float lane[8] = {};
      for (int64_t i = 128 * block; i < std::min<int64_t>(128 * block + 128, kIntermediate); ++i) {
        const float up = reference::float_from_bf16(in.h1[(2 * row + 1) * kIntermediate + i]);
        const float gradient = reference::float_from_bf16(in.dact[row * kIntermediate + i]);
        float& sum = lane[i % 64 / 8];
        sum = std::fma(gradient * 128.0f, up, sum);
      }
      const float wanted =
          ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
      EXPECT_EQ(got.dprobs[2 * row + block], wanted) << "row " << row << ", block " << block;
    }
  }
}

// One special number in a block of its own, in each operand, under each kind of probability.
TEST_F(ActivationBackwardKernel, TakesSpecialValuesAndProbabilities) {
  const std::vector<float> values{kNan, kInf, -kInf, 0.0f, -0.0f, 0x1p-130f, 0x1p90f};
  const std::vector<float> probs{1.0f, 0.3f, 0.0f, -0.0f, -2.0f, kNan, kInf, 0x1p-140f};
  const auto count = static_cast<int32_t>(values.size() * probs.size());
  const int64_t intermediate = 4 * 128;
  Gradients in = random({count}, intermediate, 8);
  for (int32_t row = 0; row < count; ++row) {
    const float value = values[row % values.size()];
    in.probs[row] = probs[row / values.size()];
    in.set(row, 5, value, 1.5f, -1.0f);
    in.set(row, 128 + 77, -0.5f, value, 2.0f);
    in.set(row, 256 + 8, 2.0f, -1.0f, value);
    for (int64_t i = 3 * 128; i < intermediate; ++i) in.set(row, i, 1.0f, 3.0f, value);
  }
  const auto wanted =
      reference::activation_backward_quantize(in.h1, in.dact, in.probs, in.route, intermediate);
  const Results got = run_on(in, 3);
  EXPECT_TRUE(matches(compare_f32({"dh1_scale_inv", 8}, got.scale_inv, wanted.scale_inv)));
  EXPECT_TRUE(matches(compare_e4m3_within_one_code({"dh1_q", 2 * intermediate}, got.q, wanted.q)));
  for (size_t i = 0; i < got.dprobs.size(); ++i) {
    SCOPED_TRACE(i);
    const double sum = wanted.dprobs_blocks[i];
    if (std::isnan(sum)) {
      EXPECT_TRUE(std::isnan(got.dprobs[i]));
    } else if (std::isinf(sum)) {
      EXPECT_EQ(got.dprobs[i], sum);
    } else {
      EXPECT_LE(std::fabs(got.dprobs[i] - sum), wanted.dprobs_bounds[i]);
    }
  }
}

// With a gate and up of 128 and a gradient of 2^-7 both results are the probability, bit for bit:
// an amax may be any fp32 number. Here they are 448 * 2^k and its neighbours, down to below
// epsilon, and 0.
TEST_F(ActivationBackwardKernel, FindsTheScaleOfAnAmaxBesideAStep) {
  std::vector<float> probs{0.0f};
  for (int k = -60; k <= 20; ++k) {
    const float step = std::ldexp(1.75f, k);
    for (const float prob : {std::nextafterf(step, 0.0f), step, std::nextafterf(step, 1e30f)})
      probs.push_back(prob);
  }
  Gradients in = random({static_cast<int32_t>(probs.size())}, 16, 9);
  std::copy(probs.begin(), probs.end(), in.probs.begin());
  for (size_t row = 0; row < probs.size(); ++row) {
    for (int64_t i = 0; i < 16; ++i) in.set(static_cast<int64_t>(row), i, 128.0f, 128.0f, 0x1p-7f);
  }
  const auto wanted =
      reference::activation_backward_quantize(in.h1, in.dact, in.probs, in.route, 16);
  const Results got = run_on(in, 2);
  EXPECT_TRUE(matches(compare_f32({"dh1_scale_inv", 2}, got.scale_inv, wanted.scale_inv)));
  EXPECT_TRUE(matches(compare_e4m3({"dh1_q", 32}, got.q, wanted.q)));
}

TEST_F(ActivationBackwardKernel, TakesNoRows) { expect_close(random({0, 0, 0}, 272, 10), 2); }

}  // namespace
}  // namespace moejit::testing
