// SPDX-License-Identifier: Apache-2.0
// Chains in which a row has one scale, against the reference. What a chain computes is compared
// with the cast of the bf16 rows that the chain without a cast stores: bit for bit.
#include "compiler/kernels/row_chain.h"
#include "compiler/planner/candidates.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/layer_inputs.h"

#include <algorithm>
#include <cmath>

namespace moejit::testing {
namespace {

using compiler::LoadStage;
using compiler::QuantizeStage;
using compiler::row_warps;
using compiler::RowChainSpec;
using compiler::StoreStage;
using compiler::TransformStage;
using compiler::with_whole_rows;
using reference::kRowEps;

const std::vector<int32_t> kWholeRowCounts{0, 1, 15, 16, 0, 17, 127, 128, 129, 0};

// Rows as wide as a segment, less, more, as wide as several warps hold, and of a model.
constexpr std::array<int64_t, 8> kWidths = {16, 112, 128, 512, 528, 1040, 2880, 7168};

int64_t teams_of(const RowChainSpec& spec) { return spec.threads / (32 * row_warps(spec)); }

// Row r has as its largest magnitude each bf16 number in turn, at another place, and NaN beside it.
std::vector<uint16_t> rows_of_every_amax(int64_t columns, int first, int64_t rows) {
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    const auto amax = static_cast<uint16_t>(first + row);
    uint16_t* const at = &values[static_cast<size_t>(row * columns)];
    at[row * 97 % columns] = static_cast<uint16_t>(amax | (row % 2 != 0 ? 0x8000 : 0));
    at[(row * 97 + 1) % columns] = static_cast<uint16_t>(amax - amax / 128);
    at[(row * 97 + 2) % columns] = row % 4 == 0 ? 0x7fc0 : 0xffff;
    at[(row * 97 + 3) % columns] = 0x8000;
  }
  return values;
}

class WholeRowKernel : public Chains {
 protected:
  void expect_equal(const std::vector<uint16_t>& values, int64_t columns, RowChainSpec spec,
                    int64_t ctas, float epsilon = kRowEps) {
    const int64_t rows = std::ssize(values) / columns;
    const auto wanted = reference::quantize_rows(values, rows, columns, epsilon);
    const DeviceBuffer x = input("x", values);
    const DeviceBuffer q = output<uint8_t>("x_q", rows * columns);
    const DeviceBuffer scale_inv = output<float>("x_scale_inv", rows);
    const device::RowChainParams params{.input = x.as<const void>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .rows = rows};
    spec.epsilon = epsilon;
    run(spec, ctas, params, {&x, &q, &scale_inv});
    EXPECT_TRUE(matches(compare_e4m3({"x_q", columns}, q.download<uint8_t>(), wanted.q)));
    EXPECT_TRUE(
        matches(compare_f32({"x_scale_inv", 1}, scale_inv.download<float>(), wanted.scale_inv)));
  }
  static RowChainSpec rows_of(int64_t columns) {
    return with_whole_rows(
        {.quantize = QuantizeStage::kRow, .columns = static_cast<int32_t>(columns)});
  }
};

TEST_F(WholeRowKernel, EqualsTheReferenceForRowsOfAnyLength) {
  for (const int64_t columns : kWidths) {
    SCOPED_TRACE(columns);
    expect_equal(reference::random_activations(11, columns, 1), columns, rows_of(columns), 3);
  }
}

TEST_F(WholeRowKernel, EqualsTheReferenceOnSpecialValues) {
  const int64_t rows = 2 * reference::kSpecialBlocks;
  for (const float epsilon : {0.0f, kRowEps})
    expect_equal(reference::special_activations(rows, 272, 1), 272, rows_of(272), 2, epsilon);
}

TEST_F(WholeRowKernel, FindsTheScaleOfEveryAmaxWhereverItIs) {
  expect_equal(rows_of_every_amax(48, 0, 0x7f81), 48, rows_of(48), 5);
  // Rows of several warps have 448 * 2^k and its neighbors, numbers below all scales, and infinity.
  for (const int first : {0, 0x2b80, 0x43d8, 0x7f78})
    expect_equal(rows_of_every_amax(1040, first, 12), 1040, rows_of(1040), 2);
}

TEST_F(WholeRowKernel, GivesTheSameForAnyNumberOfCtasAndSegments) {
  const auto values = reference::random_activations(23, 1168, 5);
  for (const int64_t ctas : {1, 2, 7, 40})
    for (const int32_t segments : {1, 2, 4})
      expect_equal(values, 1168, with_whole_rows(rows_of(1168), segments), ctas);
}

TEST_F(WholeRowKernel, GivesTheSameForAllCandidates) {
  const auto values = reference::random_activations(9, 2880, 6);
  const auto programs = programs_of(candidates_of(rows_of(2880), kManyRows));
  EXPECT_GE(programs.size(), 3U);
  for (const RowChainSpec& spec : programs) {
    SCOPED_TRACE(to_string(spec));
    expect_equal(values, 2880, spec, 2);
  }
}

TEST_F(WholeRowKernel, DoesNotDependOnTheOrderOfThreads) {
  for (const uint64_t seed : {1, 2, 3}) {
    open(seed);
    expect_equal(reference::random_activations(13, 1552, 5), 1552, rows_of(1552), 2);
  }
}

TEST_F(WholeRowKernel, TakesNoRows) { expect_equal({}, 272, rows_of(272), 2); }

TEST(WholeRows, AreHeldByAsManyWarpsAsTheyNeed) {
  const auto of = [](int32_t columns) {
    return with_whole_rows({.quantize = QuantizeStage::kRow, .columns = columns});
  };
  EXPECT_EQ(row_warps(of(7168)), 7);
  EXPECT_EQ(of(7168).threads, 224);
  EXPECT_EQ(teams_of(of(512)), 8);
  EXPECT_EQ(of(2880).threads, 192);
  EXPECT_EQ(of(131072).threads, 1024);
}

class ScaledWeightsKernel : public Chains {
 protected:
  void expect_equal(const std::vector<uint16_t>& weights, int64_t matrices, int32_t sections,
                    int32_t section_rows, int32_t columns, bool is_interleaved, int64_t ctas) {
    const int64_t rows = matrices * sections * section_rows;
    const auto wanted = reference::quantize_rows(weights, rows, columns);
    const DeviceBuffer w =
        input("w", is_interleaved ? reference::interleaved<uint16_t>(weights, section_rows, columns)
                                  : weights);
    const DeviceBuffer q = output<uint8_t>("w_q", rows * columns);
    const DeviceBuffer scale_inv = output<float>("w_scale_inv", rows);
    const DeviceBuffer skip = input("skip", std::vector<uint32_t>{skip_});
    const device::RowChainParams params{.input = w.as<const void>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .rows = rows,
                                        .skip = skip.as<const uint32_t>()};
    const RowChainSpec spec = with_whole_rows({.load = LoadStage::kMatrixRows,
                                               .quantize = QuantizeStage::kRow,
                                               .columns = columns,
                                               .local_experts = static_cast<int32_t>(matrices),
                                               .epsilon = kRowEps,
                                               .sections = sections,
                                               .section_rows = section_rows,
                                               .is_interleaved = is_interleaved});
    run(spec, ctas, params, {&w, &q, &scale_inv, &skip});
    if (skip_ != 0) {
      EXPECT_TRUE(untouched_from(q.download<uint8_t>(), 0));
      EXPECT_TRUE(untouched_from(scale_inv.download<float>(), 0));
      return;
    }
    EXPECT_TRUE(matches(compare_e4m3({"w_q", columns}, q.download<uint8_t>(), wanted.q)));
    EXPECT_TRUE(
        matches(compare_f32({"w_scale_inv", 1}, scale_inv.download<float>(), wanted.scale_inv)));
  }
  uint32_t skip_ = 0;
};

TEST_F(ScaledWeightsKernel, SortsRowsOfSectionsThatAlternate) {
  const auto weights = reference::random_weights(3, 2 * 48, 592, 1);
  for (const bool is_interleaved : {false, true})
    expect_equal(weights, 3, 2, 48, 592, is_interleaved, 3);
}

TEST_F(ScaledWeightsKernel, WritesNothingWhereItIsSkipped) {
  skip_ = 1;
  expect_equal(reference::random_weights(2, 16, 48, 1), 2, 1, 16, 48, false, 2);
}

// Activations and their gradients, of groups with pad rows.
class ScaledActivationKernel : public Chains {
 protected:
  struct Rows {
    int64_t intermediate = 0;
    bool has_gate = true;
    std::vector<uint16_t> h1, dact;
    std::vector<float> probs;
    std::vector<int32_t> offs = {0};
    int64_t count() const { return offs.back() + 5; }
    int64_t h1_columns() const { return has_gate ? 2 * intermediate : intermediate; }
  };
  static Rows random(int64_t intermediate, bool has_gate, uint64_t seed) {
    Rows rows{.intermediate = intermediate, .has_gate = has_gate};
    for (const int32_t count : kWholeRowCounts)
      rows.offs.push_back(rows.offs.back() + (count + 15) / 16 * 16);
    rows.h1 = reference::random_activations(rows.count(), rows.h1_columns(), seed);
    rows.dact = reference::random_activations(rows.count(), intermediate, seed + 1);
    rows.probs = reference::random_probs(rows.count(), 8, seed + 2);
    rows.probs.resize(static_cast<size_t>(rows.count()));
    for (int64_t i = 0; i < 3 * intermediate; ++i) rows.dact[static_cast<size_t>(i)] = 0;
    rows.dact[5 * static_cast<size_t>(intermediate)] = 0x7fc0;
    rows.h1[9 * static_cast<size_t>(rows.h1_columns())] = 0x7fc0;
    return rows;
  }
  // What a chain stores of all rows.
  struct Stored {
    std::vector<uint8_t> bytes;
    std::vector<float> scale_inv, dprobs;
  };
  Stored run_on(const Rows& rows, RowChainSpec spec, int64_t ctas) {
    const bool is_gradient = spec.transform == TransformStage::kActivationBackward;
    spec.columns = static_cast<int32_t>(rows.intermediate);
    spec.local_experts = static_cast<int32_t>(kWholeRowCounts.size());
    spec.epsilon = kRowEps;
    if (has_row_scale(spec)) spec = with_whole_rows(spec);
    const int64_t columns = is_gradient ? rows.h1_columns() : rows.intermediate;
    const DeviceBuffer h1 = input("h1", rows.h1), dact = input("dact", rows.dact);
    const DeviceBuffer probs = input("probs", rows.probs);
    const DeviceBuffer counts = input("counts", kWholeRowCounts), offs = input("offs", rows.offs);
    const DeviceBuffer out =
        output<uint8_t>("out", rows.count() * columns * (has_row_scale(spec) ? 1 : 2));
    const DeviceBuffer scale_inv = output<float>("scale_inv", rows.count());
    const DeviceBuffer dprobs =
        output<float>("dprobs", rows.count() * reference::block_count(rows.intermediate));
    const device::RowChainParams params{.input = h1.as<const void>(),
                                        .gradient = dact.as<const void>(),
                                        .probs = probs.as<const void>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = out.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .output_dprobs = dprobs.as<float>(),
                                        .rows = rows.count()};
    run(spec, ctas, params, {&h1, &dact, &probs, &counts, &offs, &out, &scale_inv, &dprobs});
    return {out.download<uint8_t>(), scale_inv.download<float>(), dprobs.download<float>()};
  }
  // Compares the chain's rows with the cast of those that the same chain rounds to bf16.
  void expect_cast_of_bf16(const Rows& rows, RowChainSpec spec, int64_t ctas = 3) {
    const bool is_gradient = spec.transform == TransformStage::kActivationBackward;
    const int64_t columns = is_gradient ? rows.h1_columns() : rows.intermediate;
    spec.quantize = QuantizeStage::kNone;
    const Stored rounded = run_on(rows, spec, 3);
    spec.quantize = QuantizeStage::kRow;
    const Stored got = run_on(rows, spec, ctas);
    const int64_t count = rows.offs.back();
    std::vector<uint16_t> values(static_cast<size_t>(count * columns));
    std::memcpy(values.data(), rounded.bytes.data(), 2 * values.size());
    auto wanted = reference::quantize_rows(values, count, columns);
    for (size_t e = 0; e < kWholeRowCounts.size(); ++e)
      for (int64_t row = rows.offs[e] + kWholeRowCounts[e]; row < rows.offs[e + 1]; ++row)
        wanted.scale_inv[static_cast<size_t>(row)] = 0.0f;
    EXPECT_TRUE(matches(compare_e4m3({"q", columns}, head(got.bytes, count * columns), wanted.q)));
    EXPECT_TRUE(untouched_from(got.bytes, count * columns));
    EXPECT_TRUE(
        matches(compare_f32({"scale_inv", 1}, head(got.scale_inv, count), wanted.scale_inv)));
    EXPECT_TRUE(untouched_from(got.scale_inv, count));
    const int64_t blocks = is_gradient ? reference::block_count(rows.intermediate) : 0;
    EXPECT_TRUE(matches(compare_f32({"dprobs", std::max<int64_t>(blocks, 1)},
                                    head(got.dprobs, count * blocks),
                                    head(rounded.dprobs, count * blocks))));
  }
};

TEST_F(ScaledActivationKernel, CastsTheRoundedActivation) {
  for (const int64_t intermediate : {16, 272, 528, 2048}) {
    SCOPED_TRACE(intermediate);
    expect_cast_of_bf16(random(intermediate, true, 1),
                        {.load = LoadStage::kGatedRows,
                         .transform = TransformStage::kActivationProbability,
                         .store = StoreStage::kGroupedRows});
  }
  expect_cast_of_bf16(random(1296, false, 2),
                      {.load = LoadStage::kUpRows,
                       .transform = TransformStage::kActivationProbability,
                       .store = StoreStage::kGroupedRows,
                       .activation = compiler::make_activation("relu_squared").value()});
}

TEST_F(ScaledActivationKernel, CastsTheRoundedGradientsOfGateAndUpWithOneScale) {
  for (const int64_t intermediate : {16, 272, 528, 2048}) {
    SCOPED_TRACE(intermediate);
    expect_cast_of_bf16(random(intermediate, true, 3),
                        {.load = LoadStage::kGatedGradientRows,
                         .transform = TransformStage::kActivationBackward,
                         .store = StoreStage::kGroupedGatedRows});
  }
  expect_cast_of_bf16(random(1296, false, 4),
                      {.load = LoadStage::kUpGradientRows,
                       .transform = TransformStage::kActivationBackward,
                       .store = StoreStage::kGroupedUpRows,
                       .activation = compiler::make_activation("relu_squared").value()});
}

}  // namespace
}  // namespace moejit::testing
