// SPDX-License-Identifier: Apache-2.0
// The order of Blackwell's GEMMs for E4M3 scales of 16 elements, against the reference.
#include "compiler/launch.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/two_level.h"
#include "templates/moejit_device/params/swizzle_scales_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/transpose_groups.h"

namespace moejit::testing {
namespace {

using reference::TransposeGroups;

class TwoLevelSwizzle : public Chains {
 protected:
  // Scales lie in any bytes, also those of pad rows, which have no say.
  void expect_equal(const TransposeGroups& groups, int64_t columns, bool of_columns) {
    const int64_t rows = groups.offs.back(), output_rows = groups.output_offs.back() + 128;
    const int64_t pitch = compiler::two_level_pitch(rows + 5);
    const int64_t row_scales = 8 * ((columns + 127) / 128);
    const reference::RandomStream random(4, 1);
    std::vector<uint8_t> given(
        static_cast<size_t>(of_columns ? columns * pitch / 16 : rows * row_scales));
    for (size_t i = 0; i < given.size(); ++i)
      given[i] = static_cast<uint8_t>(1 + random.below(i, 255));
    std::vector<uint8_t> wanted =
        of_columns ? reference::swizzled_column_scales(given, columns, pitch, groups)
                   : reference::swizzled_row_scales(given, columns, groups);
    wanted.resize(static_cast<size_t>(output_rows * row_scales), kUntouched);
    const DeviceBuffer scales = input("scales", given);
    const DeviceBuffer counts = input("counts", groups.counts);
    const DeviceBuffer offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const DeviceBuffer swizzled = output<uint8_t>("swizzled", output_rows * row_scales);
    const device::SwizzleScalesParams params{.input = scales.as<const uint8_t>(),
                                             .counts = counts.as<const int32_t>(),
                                             .offs = offs.as<const int32_t>(),
                                             .output_offs = output_offs.as<const int32_t>(),
                                             .output = swizzled.as<uint8_t>(),
                                             .rows = rows,
                                             .output_columns = output_rows,
                                             .pitch = pitch};
    const int64_t tiles = 2 * ((columns + 127) / 128);
    run(compiler::SwizzleScalesSpec{.of_columns = of_columns,
                                    .group = 16,
                                    .local_experts = static_cast<int32_t>(groups.counts.size()),
                                    .columns = static_cast<int32_t>(columns)},
        output_rows / 128 * ((tiles + 7) / 8), params,
        {&scales, &counts, &offs, &output_offs, &swizzled});
    EXPECT_TRUE(matches(compare_bytes({"swizzled", 512}, swizzled.download<uint8_t>(), wanted)));
  }
};

TEST_F(TwoLevelSwizzle, EqualsTheReferenceForGroupsOfAnySize) {
  for (const int64_t columns : {16, 160, 1184})
    for (const bool of_columns : {false, true}) {
      SCOPED_TRACE(columns);
      expect_equal(groups_of({0, 1, 15, 16, 0, 17, 127, 128, 129, 33, 0}), columns, of_columns);
    }
}

}  // namespace
}  // namespace moejit::testing
