// SPDX-License-Identifier: Apache-2.0
// The kernel that makes the gradient of a gated activation and both operands of wgrad where experts
// have known scales: rows and magnitudes against the row chains whose bits it promises, columns
// against the bytes of these rows.
#include "compiler/launch.h"
#include "runtime/reference/layouts.h"
#include "templates/moejit_device/params/gated_gradient_params.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/gated_gradient_cases.h"

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::GatedGradientSpec;
using compiler::LoadStage;
using compiler::QuantizeStage;
using compiler::RowChainSpec;
using compiler::StoreStage;
using compiler::TransformStage;

constexpr compiler::AmaxColumns kColumnsOfState{.stride = 2, .first = 1};

class GatedGradientCast : public Chains {
 protected:
  using Inputs = GatedGradientInputs;
  // dh1 [owned, 2 * pitch], act [owned, columns], and the state [2 E] behind both.
  struct Rows {
    std::vector<uint8_t> dh1, act;
    std::vector<float> dprobs, amax;
  };

  static std::vector<float> scales(const Inputs& in, float first) {
    std::vector<float> scales;
    for (size_t e = 0; e < in.groups.counts.size(); ++e)
      scales.push_back(first * (1.0F + 0.37F * static_cast<float>(e)));
    return scales;
  }
  // The second expert's column is above all magnitudes, the others are to be raised.
  DeviceBuffer state(const Inputs& in) {
    std::vector<float> amax(2 * in.groups.counts.size(), 0.0F);
    amax[3] = 1000.0F;
    DeviceBuffer state = output<float>("amax", std::ssize(amax));
    state.upload(0, amax);
    return state;
  }

  // By the row chains.
  Rows rows_of(const Inputs& in, DType format) {
    const int64_t pitch = in.pitch(), blocks = reference::block_count(in.columns);
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer gradient_scales = input("dh1_scale", scales(in, 3000.0F));
    const DeviceBuffer act_scales = input("act_scale", scales(in, 20.0F));
    const DeviceBuffer dh1 = output<uint8_t>("dh1_q", in.owned() * 2 * pitch);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.owned() * blocks);
    const DeviceBuffer act = output<uint8_t>("act_q", in.owned() * in.columns);
    const DeviceBuffer amax = state(in);
    device::RowChainParams params{.input = up.h1.as<const void>(),
                                  .gradient = up.dact.as<const void>(),
                                  .probs = up.probs.as<const float>(),
                                  .counts = up.counts.as<const int32_t>(),
                                  .offs = up.offs.as<const int32_t>(),
                                  .output = dh1.as<void>(),
                                  .output_dprobs = dprobs.as<float>(),
                                  .rows = in.rows,
                                  .expert_scales = gradient_scales.as<const float>(),
                                  .amax = amax.as<float>()};
    RowChainSpec spec{.load = LoadStage::kGatedGradientRows,
                      .transform = TransformStage::kActivationBackward,
                      .quantize = QuantizeStage::kExpert,
                      .store = StoreStage::kGroupedGatedRows,
                      .columns = static_cast<int32_t>(in.columns),
                      .local_experts = static_cast<int32_t>(in.groups.counts.size()),
                      .segments_in_flight = 1,
                      .pitch = pitch == in.columns ? 0 : static_cast<int32_t>(pitch),
                      .activation = in.activation};
    spec.format = format;
    spec.amax = kColumnsOfState;
    run(spec, 3, params,
        {&up.h1, &up.dact, &up.probs, &up.counts, &up.offs, &gradient_scales, &dh1, &dprobs,
         &amax});
    spec.load = LoadStage::kGatedRows;
    spec.transform = TransformStage::kActivationProbability;
    spec.store = StoreStage::kGroupedRows;
    spec.format = DType::kF8E4M3;
    spec.amax = {};
    spec.pitch = 0;
    params.gradient = nullptr;
    params.output = act.as<void>();
    params.output_dprobs = nullptr;
    params.expert_scales = act_scales.as<const float>();
    params.amax = nullptr;
    run(spec, 3, params, {&up.h1, &up.probs, &up.counts, &up.offs, &act_scales, &act});
    return {dh1.download<uint8_t>(), act.download<uint8_t>(), dprobs.download<float>(),
            amax.download<float>()};
  }

  // What the columns of experts hold, [width, output columns].
  static std::vector<uint8_t> transposed(const std::vector<uint8_t>& rows, int64_t width,
                                         const Inputs& in) {
    const int64_t columns = in.output_columns();
    std::vector<uint8_t> bytes(static_cast<size_t>(width * columns), kUntouched);
    for (size_t e = 0; e < in.groups.counts.size(); ++e)
      for (int64_t i = 0; i < reference::block_count(in.groups.counts[e]) * 128; ++i)
        for (int64_t c = 0; c < width; ++c)
          bytes[static_cast<size_t>(c * columns + in.groups.output_offs[e] + i)] =
              i < in.groups.counts[e]
                  ? rows[static_cast<size_t>((in.groups.offs[e] + i) * width + c)]
                  : 0;
    return bytes;
  }

  void expect_bits_of_rows_and_their_bytes(const Inputs& in, DType format, int32_t threads = 256) {
    const Rows wanted = rows_of(in, format);
    const int64_t pitch = in.pitch(), blocks = reference::block_count(in.columns);
    const int64_t columns = in.output_columns();
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer output_offs = input("output_offs", in.groups.output_offs);
    const DeviceBuffer gradient_scales = input("dh1_scale", scales(in, 3000.0F));
    const DeviceBuffer act_scales = input("act_scale", scales(in, 20.0F));
    const DeviceBuffer dh1 = output<uint8_t>("dh1_q", in.rows * 2 * pitch);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.rows * blocks);
    const DeviceBuffer dh1_colwise = output<uint8_t>("dh1_colwise_q", 2 * pitch * columns);
    const DeviceBuffer act_colwise = output<uint8_t>("act_colwise_q", in.columns * columns);
    const DeviceBuffer amax = state(in);
    const device::GatedGradientParams params{.input = up.h1.as<const void>(),
                                             .gradient = up.dact.as<const void>(),
                                             .probs = up.probs.as<const float>(),
                                             .counts = up.counts.as<const int32_t>(),
                                             .offs = up.offs.as<const int32_t>(),
                                             .output_offs = output_offs.as<const int32_t>(),
                                             .output = dh1.as<void>(),
                                             .output_dprobs = dprobs.as<float>(),
                                             .output_colwise = dh1_colwise.as<uint8_t>(),
                                             .act_colwise = act_colwise.as<uint8_t>(),
                                             .expert_scales = gradient_scales.as<const float>(),
                                             .act_expert_scales = act_scales.as<const float>(),
                                             .amax = amax.as<float>(),
                                             .rows = in.rows,
                                             .output_columns = columns};
    const GatedGradientSpec spec{.local_experts = static_cast<int32_t>(in.groups.counts.size()),
                                 .columns = static_cast<int32_t>(in.columns),
                                 .threads = threads,
                                 .has_expert_scale = true,
                                 .format = format,
                                 .amax = kColumnsOfState,
                                 .activation = in.activation};
    run(spec, compiler::busy_ctas(spec, columns) + 1, params,
        {&up.h1, &up.dact, &up.probs, &up.counts, &up.offs, &output_offs, &gradient_scales,
         &act_scales, &dh1, &dprobs, &dh1_colwise, &act_colwise, &amax});

    const auto expect_rows = [&]<typename T>(const DeviceBuffer& got, const std::vector<T>& rows) {
      EXPECT_EQ(head(got.download<T>(), std::ssize(rows)), rows);
      EXPECT_TRUE(untouched_from(got.download<T>(), std::ssize(rows)));
    };
    expect_rows(dh1, wanted.dh1);
    expect_rows(dprobs, wanted.dprobs);
    EXPECT_EQ(amax.download<float>(), wanted.amax);
    const auto expect_columns = [&](const DeviceBuffer& got, const std::vector<uint8_t>& rows,
                                    int64_t width) {
      EXPECT_TRUE(matches(compare_e4m3(
          {"q", columns}, reference::from_column_blocks(got.download<uint8_t>(), columns),
          transposed(rows, width, in))));
    };
    expect_columns(dh1_colwise, wanted.dh1, 2 * pitch);
    expect_columns(act_colwise, wanted.act, in.columns);
  }

 private:
  UploadedGatedGradient upload(const Inputs& in) {
    return {in, [this](const char* name, const auto& values) { return input(name, values); }};
  }
};

TEST_F(GatedGradientCast, HasTheBitsOfRowChainsForRowsOfAnyLengthInBothFormats) {
  for (const int64_t columns : {16, 128, 272})
    for (const DType format : {DType::kF8E5M2, DType::kF8E4M3}) {
      SCOPED_TRACE(columns);
      expect_bits_of_rows_and_their_bytes(random_gated_gradient(kGatedGradientCounts, columns),
                                          format);
    }
}

TEST_F(GatedGradientCast, LeavesOutWhatIsOutsideOfRows) {
  Inputs in = random_gated_gradient(kGatedGradientCounts, 176);
  for (const ActivationCase& activation : cases_not_zero_at_zero()) {
    if (!activation.reference.has_gate) continue;
    SCOPED_TRACE(activation.name);
    in.activation = activation.compiled;
    expect_bits_of_rows_and_their_bytes(in, DType::kF8E5M2);
  }
}

// A pair of warps takes all three tiles, and there are more pairs than tiles.
TEST_F(GatedGradientCast, HasTheseBitsForAnyThreadsInAnyOrder) {
  const Inputs in = random_gated_gradient(kGatedGradientCounts, 272);
  for (const int32_t threads : {64, 128, 512}) {
    SCOPED_TRACE(threads);
    open(static_cast<uint64_t>(threads));
    expect_bits_of_rows_and_their_bytes(in, DType::kF8E5M2, threads);
  }
}

TEST_F(GatedGradientCast, TouchesNothingWhereAllGroupsAreEmpty) {
  expect_bits_of_rows_and_their_bytes(random_gated_gradient(kEmptyGatedGradientCounts, 272),
                                      DType::kF8E5M2);
}

}  // namespace
}  // namespace moejit::testing
