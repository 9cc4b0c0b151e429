// SPDX-License-Identifier: Apache-2.0
// The host's idea of how many threads of an SM registers are left for is that of the device code.
#include "compiler/kernels/threads_per_sm.h"

#include "tests/sim/support/sim_kernel.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

using compiler::LoadStage;
using compiler::usual_threads_per_sm;

// Returns an assertion about a type that has `kThreadsPerSm`.
std::string assertion(std::string_view type, int32_t threads) {
  return fmt::format("static_assert({}::kThreadsPerSm == {});\n", type, threads);
}

std::string chains() {
  const auto load = [](std::string_view type, LoadStage stage, int32_t top_k = 0) {
    return assertion(type, usual_threads_per_sm({.load = stage, .top_k = top_k}));
  };
  return "#include \"moejit_device/stage/load.cuh\"\n"
         "#include \"moejit_device/stage/load_combined.cuh\"\n" +
         load("LoadRows<128>", LoadStage::kRows) +
         load("LoadUnchangedRows<128>", LoadStage::kRows) +
         load("LoadQuantizedRows<128>", LoadStage::kQuantizedRows) +
         load("LoadGatedRows<128>", LoadStage::kGatedRows) +
         load("LoadGatedGradientRows<128>", LoadStage::kGatedGradientRows) +
         load("LoadUpRows<128>", LoadStage::kUpRows) +
         load("LoadUpGradientRows<128>", LoadStage::kUpGradientRows) +
         load("LoadCombinedRows<128, 8>", LoadStage::kCombinedRows, 8) +
         load("LoadCombinedRows<128, 9>", LoadStage::kCombinedRows, 9);
}

std::string transposes() {
  return "#include \"moejit_device/transpose/column_cast.cuh\"\n"
         "#include \"moejit_device/transpose/gated_gradient_columns.cuh\"\n"
         "#include \"moejit_device/transpose/gated_gradient_amax.cuh\"\n"
         "#include \"moejit_device/transpose/gated_gradient_tiles.cuh\"\n"
         "#include \"moejit_device/transpose/group_column_scales.cuh\"\n"
         "#include \"moejit_device/transpose/scaled_column_cast.cuh\"\n" +
         assertion("IgnoreFlushed", usual_threads_per_sm(compiler::TransposeSpec{})) +
         assertion("CountFlushed",
                   usual_threads_per_sm(compiler::TransposeSpec{.counts_flushed = true})) +
         fmt::format(
             "struct Activation {{}};\n"
             "using Tiles = GatedGradientTiles<1, 128, 128, Activation, Quantize1x128<0>, 64>;\n"
             "static_assert(Tiles::kCtasPerSm * 64 == {});\n",
             usual_threads_per_sm(compiler::GatedGradientSpec{})) +
         fmt::format(
             "using Columns = GatedGradientColumns<1, 128, 128, Activation, 0, 64>;\n"
             "using Magnitudes = GatedGradientAmax<1, 128, 128, Activation, 64>;\n"
             "static_assert(Columns::kCtasPerSm * 64 == {0} && Magnitudes::kCtasPerSm * 64 == "
             "{0});\n"
             "using Cast = ColumnCast<1, 128, RowsInOrder<256>, 0, 64>;\n"
             "static_assert(Cast::kCtasPerSm * 64 == {1});\n"
             "using Scales = GroupColumnScales<ExpertRows<1>, 128, RowsInOrder<256>, 0, 64>;\n"
             "using Scaled = ScaledColumnCast<ExpertRows<1>, 128, RowsInOrder<256>, 64>;\n"
             "static_assert(Scales::kCtasPerSm * 64 == {2} && Scaled::kCtasPerSm * 64 == {2});\n",
             usual_threads_per_sm(compiler::GatedGradientSpec{.casts_columns = true}),
             usual_threads_per_sm(compiler::ColumnCastSpec{}),
             usual_threads_per_sm(compiler::GroupColumnsSpec{}));
}

TEST(ThreadsPerSm, AreThoseOfTheDeviceCode) {
  const auto compiled = compile_test_kernel(chains() + transposes() +
                                            "struct Params { uint32_t* output; };\n"
                                            "MOEJIT_KERNEL(32, 1, test_kernel, Params) {}\n");
  ASSERT_TRUE(compiled.has_value()) << to_string(compiled.error());
}

}  // namespace
}  // namespace moejit::runtime
