// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/planned_transposes.h"

#include "compiler/compiler.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <string_view>

namespace moejit::testing {

// Transposes of each rule, both formats, with a counter and without.
void add_transposes(std::map<std::string, PlannedKernel>& all) {
  using compiler::DType;
  using compiler::TransposeRule;
  for (const DType format : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const TransposeRule rule : {TransposeRule::kIdeal, TransposeRule::kForkCompat}) {
      for (const bool counts_flushed : {false, true}) {
        for (const int32_t columns : {7168, 2880}) {
          const compiler::KernelSpec spec =
              compiler::TransposeSpec{.format = format,
                                      .rule = rule,
                                      .local_experts = 33,
                                      .columns = columns,
                                      .counts_flushed = counts_flushed};
          const auto source = compiler::emit_kernel({.operation = "transpose", .spec = spec}, {});
          EXPECT_TRUE(succeeded(source));
          if (source) all.try_emplace(source->entry, PlannedKernel{spec, *source});
        }
      }
    }
  }
}

// Casts by columns, of rows in order and of gathered ones, and what fp8_blockwise casts of computed
// values.
void add_casts_of_values(std::map<std::string, PlannedKernel>& all) {
  using compiler::RowSource;
  const auto add = [&](std::string_view operation, const compiler::KernelSpec& spec) {
    const auto source =
        compiler::emit_kernel({.operation = std::string(operation), .spec = spec}, {});
    EXPECT_TRUE(succeeded(source));
    if (source) all.try_emplace(source->entry, PlannedKernel{spec, *source});
  };
  for (const int32_t columns : {7168, 2880}) {
    for (const RowSource source :
         {RowSource::kInOrder, RowSource::kGathered, RowSource::kGatheredAll})
      add("quantize_columns",
          compiler::ColumnCastSpec{.source = source, .local_experts = 33, .columns = columns});
  }
  using compiler::CastResult;
  for (const CastResult result : {CastResult::kCodes, CastResult::kValues}) {
    for (const RowSource source :
         {RowSource::kInOrder, RowSource::kGathered, RowSource::kGatheredAll})
      add("quantize_columns",
          compiler::BlockCastSpec{
              .source = source, .result = result, .local_experts = 33, .columns = 7168});
    for (const bool is_matrix : {false, true})
      add("quantize_both", compiler::BlockCastSpec{.result = result,
                                                   .casts_rows = true,
                                                   .local_experts = 8,
                                                   .matrix_rows = is_matrix ? 4096 : 0,
                                                   .columns = 2880});
  }
  for (const CastResult result : {CastResult::kCodes, CastResult::kValues}) {
    for (const RowSource source :
         {RowSource::kInOrder, RowSource::kGathered, RowSource::kGatheredAll})
      add("quantize_columns",
          compiler::TwoLevelCastSpec{
              .source = source, .result = result, .local_experts = 33, .columns = 7168});
    for (const bool is_matrix : {false, true})
      add("quantize_both", compiler::TwoLevelCastSpec{.result = result,
                                                      .has_tiles = is_matrix,
                                                      .casts_rows = true,
                                                      .local_experts = 8,
                                                      .matrix_rows = is_matrix ? 4096 : 0,
                                                      .columns = 2880});
  }
  for (const bool of_columns : {false, true})
    for (const int32_t group : {32, 16})
      add("swizzle_scales",
          compiler::SwizzleScalesSpec{
              .of_columns = of_columns, .group = group, .local_experts = 33, .columns = 2880});
  for (const bool is_interleaved : {false, true})
    add("pack_weights", compiler::WeightPackSpec{.sections = 2,
                                                 .section_rows = 2880,
                                                 .columns = 2880,
                                                 .is_interleaved = is_interleaved});
  for (const auto format : {compiler::PackedFormat::kNvfp4, compiler::PackedFormat::kInt4})
    add("pack_weights", compiler::WeightPackSpec{
                            .sections = 2, .section_rows = 768, .columns = 2048, .format = format});
  for (const int32_t columns : {2048, 768, 2880}) {
    for (const bool is_whole : {true, false})
      add("activation_backward_quantize_both",
          compiler::GatedGradientSpec{.local_experts = 8,
                                      .columns = columns,
                                      .stores_rows = is_whole,
                                      .tells_dprobs = is_whole,
                                      .transposes_gradient = is_whole,
                                      .casts_columns = true});
    add("activation_backward_quantize",
        compiler::with_whole_rows({.load = compiler::LoadStage::kGatedGradientRows,
                                   .transform = compiler::TransformStage::kActivationBackward,
                                   .quantize = compiler::QuantizeStage::kRow,
                                   .store = compiler::StoreStage::kGroupedGatedRows,
                                   .columns = columns,
                                   .local_experts = 8,
                                   .epsilon = 1e-12F}));
    for (const auto pass : {compiler::GradientPass::kAmax, compiler::GradientPass::kCast})
      for (const bool has_rows : {true, false})
        for (const bool has_columns : {true, false})
          if (has_rows || has_columns)
            add("activation_backward_quantize_both",
                compiler::GatedGradientSpec{.local_experts = 8,
                                            .columns = columns,
                                            .epsilon = 1e-12F,
                                            .stores_rows = has_rows,
                                            .transposes_gradient = has_columns,
                                            .casts_columns = true,
                                            .pass = pass});
    for (const auto stage : {compiler::QuantizeStage::k1x128Rounded, compiler::QuantizeStage::k1x32,
                             compiler::QuantizeStage::k1x32Values})
      add("activation_quantize",
          compiler::RowChainSpec{.load = compiler::LoadStage::kGatedRows,
                                 .transform = compiler::TransformStage::kActivationProbability,
                                 .quantize = stage,
                                 .store = compiler::StoreStage::kGroupedRows,
                                 .columns = columns,
                                 .local_experts = 8,
                                 .segments_in_flight = 2});
    for (const auto stage :
         {compiler::QuantizeStage::k1x128Rounded, compiler::QuantizeStage::k1x32})
      add("activation_backward",
          compiler::RowChainSpec{.load = compiler::LoadStage::kGatedGradientRows,
                                 .transform = compiler::TransformStage::kActivationBackward,
                                 .quantize = stage,
                                 .store = compiler::StoreStage::kGroupedGatedRows,
                                 .columns = columns,
                                 .local_experts = 8,
                                 .segments_in_flight = 1});
  }
}

// Gradients of the activation with scales of blocks and of pairs.
void add_activation_gradients(std::map<std::string, PlannedKernel>& all) {
  using compiler::QuantizeStage;
  for (const QuantizeStage quantize : {QuantizeStage::k1x128, QuantizeStage::k1x128Pairs}) {
    for (const int32_t columns : {2048, 768, 2880}) {
      const compiler::KernelSpec spec =
          compiler::RowChainSpec{.load = compiler::LoadStage::kGatedGradientRows,
                                 .transform = compiler::TransformStage::kActivationBackward,
                                 .quantize = quantize,
                                 .store = compiler::StoreStage::kGroupedGatedRows,
                                 .columns = columns,
                                 .local_experts = 8,
                                 .epsilon = 1e-10f,
                                 .segments_in_flight = 1};
      const auto source =
          compiler::emit_kernel({.operation = "activation_backward", .spec = spec}, {});
      EXPECT_TRUE(succeeded(source));
      if (source) all.try_emplace(source->entry, PlannedKernel{spec, *source});
    }
  }
}

// Lists of tensors in each pair of formats.
void add_cast_transposes(std::map<std::string, PlannedKernel>& all) {
  using compiler::DType;
  for (const DType input : {DType::kBF16, DType::kF32}) {
    for (const DType output : {DType::kF8E4M3, DType::kF8E5M2}) {
      const compiler::MultiCastTransposeSpec spec{.input = input, .output = output};
      const auto source =
          compiler::emit_kernel({.operation = "multi_cast_transpose", .spec = spec}, {});
      ASSERT_TRUE(succeeded(source));
      all.try_emplace(source->entry, PlannedKernel{spec, *source});
    }
  }
}

}  // namespace moejit::testing
