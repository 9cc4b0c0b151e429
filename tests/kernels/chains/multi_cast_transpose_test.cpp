// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"
#include "tests/kernels/chains/cast_transpose_runner.h"
#include "tests/kernels/chains/special_values.h"

#include <algorithm>
#include <utility>

namespace moejit::testing {
namespace {

using compiler::DType;

TEST_F(MultiCastTransposeKernel, EqualsTheReferenceOnShapesOfAllKinds) {
  constexpr int64_t kShapes[][2] = {{1, 1},     {1, 16},    {17, 33},  {128, 128},
                                    {300, 200}, {256, 400}, {144, 272}};
  for (const CastFormats& formats : kCastFormats) {
    CastList list;
    for (const auto& [rows, columns] : kShapes)
      list.push_back(random_cast_tensor(rows, columns, formats.input, list.size()));
    expect_equal(list, {.formats = formats});
  }
}

TEST_F(MultiCastTransposeKernel, TakesWideTensorsBesideSmallOnes) {
  CastList list = {
      random_cast_tensor(256, 2048, DType::kBF16, 1), random_cast_tensor(1, 1, DType::kBF16, 2),
      random_cast_tensor(2048, 16, DType::kBF16, 3), random_cast_tensor(16, 1040, DType::kBF16, 4)};
  expect_equal(list, {.ctas = 40});
}

// Rows that come in runs of 16 and columns that do not, the other way round, and neither; runs that
// begin beside a multiple of 16.
TEST_F(MultiCastTransposeKernel, TakesSizesAndAddressesOfAnyAlignment) {
  for (const CastFormats& formats : {kCastFormats[0], kCastFormats[3]}) {
    CastList list;
    for (const auto& [rows, columns] : {std::pair{129, 144}, {144, 129}, {131, 133}, {8, 24}})
      list.push_back(random_cast_tensor(rows, columns, formats.input, list.size()));
    for (int which = 0; which < 3; ++which) {
      CastTensor tensor = random_cast_tensor(144, 160, formats.input, list.size());
      (which == 0   ? tensor.input_shift
       : which == 1 ? tensor.output_shift
                    : tensor.colwise_shift) = 1 + 2 * which;
      list.push_back(tensor);
    }
    expect_equal(list, {.formats = formats});
  }
}

TEST_F(MultiCastTransposeKernel, RoundsEveryBf16AsTheReferenceDoes) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits)
    values.push_back(reference::float_from_bf16(static_cast<uint16_t>(bits)));
  for (const CastFormats& formats : kCastFormats) {
    CastList list;
    for (const std::optional<float> scale :
         {std::optional<float>{}, {0.7f}, {0x1p-127f}, {-3.0f}, {0.0f}, {kInf}, {kNan}})
      list.push_back({.rows = 256, .columns = 256, .values = values, .scale = scale});
    expect_equal(list, {.formats = formats, .ctas = 28});
  }
}

// By runs of 16 and by single elements.
TEST_F(MultiCastTransposeKernel, KeepsNanOutOfTheLargestMagnitude) {
  const std::vector<std::vector<float>> rows = {
      {kNan, 2.0f, -3.0f},           {3.0f, -5.0f, kNan},          {kNan},  {-kInf, 1.0f},
      {0x1p-149f, kNan, -0x1p-148f}, {-0x1.fffffep127f, 0x1p100f}, {-0.0f}, {}};
  for (const CastFormats& formats : kCastFormats) {
    CastList list;
    for (const int64_t columns : {16, 17}) {
      for (const std::vector<float>& row : rows) {
        std::vector<float> values(static_cast<size_t>(16 * columns), 0.0f);
        const auto first = values.end() - static_cast<int64_t>(row.size()) - 5;
        std::ranges::transform(row, first,
                               [&](float value) { return exact(value, formats.input); });
        list.push_back({.rows = 16, .columns = columns, .values = values, .scale = 0.3f});
      }
      list.push_back({.rows = 16,
                      .columns = columns,
                      .values = std::vector<float>(static_cast<size_t>(16 * columns), -kNan)});
    }
    expect_equal(list, {.formats = formats});
  }
}

// 1 / 2^127 is a subnormal, 1 / 2^-130 is too large.
TEST_F(MultiCastTransposeKernel, GivesTheRoundedReciprocalOfEveryScale) {
  CastList list;
  for (const float scale : {1.0f, 3.0f, 0.1f, 0x1p127f, 0x1.fffffep127f, 0x1p-126f, 0x1.8p-127f,
                            0x1p-130f, -7.0f, 0.0f, -0.0f, kInf, kNan})
    list.push_back({.rows = 2, .columns = 1, .values = {1.0f, -0.0f}, .scale = scale});
  expect_equal(list, {});
}

TEST_F(MultiCastTransposeKernel, RaisesTheLargestMagnitudeAndNeverLowersIt) {
  CastList list(4, random_cast_tensor(130, 144, DType::kBF16, 5));
  list[1].old_amax = 0x1p-20f;
  list[2].old_amax = 0x1p20f;
  list[3].old_amax = kInf;
  expect_equal(list, {});
}

TEST_F(MultiCastTransposeKernel, LeavesOutWhatIsNotWanted) {
  CastList list(3, random_cast_tensor(20, 48, DType::kBF16, 6));
  list[1].has_reports = false;
  list[2].scale.reset();
  expect_equal(list, {});
}

TEST_F(MultiCastTransposeKernel, LeavesEmptyTensorsAlone) {
  const CastTensor full = random_cast_tensor(130, 20, DType::kBF16, 7);
  const CastTensor no_rows{.rows = 0, .columns = 144, .scale = 2.0f, .old_amax = 3.0f};
  const CastTensor no_columns{.rows = 144, .columns = 0, .scale = 2.0f};
  expect_equal({no_rows, full, no_columns, no_rows, full, no_columns}, {});
  expect_equal({no_rows}, {});
  expect_equal({}, {});
}

// More than a warp looks at once, and more than it does twice; CTAs with and without a tile.
TEST_F(MultiCastTransposeKernel, FindsItsTileInListsOfAnyLength) {
  for (const int count : {31, 32, 33, 50, 1025}) {
    CastList list;
    for (int i = 0; i < count; ++i) {
      const bool is_empty = count < 1000 ? i % 7 == 3 : i % 40 != 0 && i + 1 < count;
      const int64_t rows = is_empty ? 0 : i == count / 2 ? 150 : 1 + i % 3;
      list.push_back(random_cast_tensor(rows, 1 + i % 5, DType::kBF16, i));
    }
    expect_equal(list, {.ctas = 60});
  }
}

TEST_F(MultiCastTransposeKernel, GivesTheSameForAnyGroupingCtasAndOrderOfThreads) {
  CastList all;
  for (const auto& [rows, columns] : {std::pair{144, 272}, {300, 33}, {5, 7}, {128, 128}})
    all.push_back(random_cast_tensor(rows, columns, DType::kBF16, all.size()));
  const CastOutputs together = cast(all, {});
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 3, 64}) {
    open(seed++);
    const CastOutputs first = cast({all[0], all[1]}, {.ctas = ctas});
    const CastOutputs second = cast({all[3], all[2]}, {.ctas = ctas});
    const CastOutputs::Tensor* const apart[] = {&first.tensors[0], &first.tensors[1],
                                                &second.tensors[1], &second.tensors[0]};
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(apart[i]->bytes, together.tensors[i].bytes);
      EXPECT_EQ(apart[i]->colwise, together.tensors[i].colwise);
      EXPECT_EQ(apart[i]->amax, together.tensors[i].amax);
      EXPECT_EQ(apart[i]->scale_inv, together.tensors[i].scale_inv);
    }
  }
}

TEST_F(MultiCastTransposeKernel, WritesNothingWhereTheSkipWordIsNotZero) {
  CastTensor tensor = random_cast_tensor(144, 145, DType::kBF16, 8);
  tensor.old_amax = 0.25f;
  expect_equal({tensor}, {.skip = {0}});
  for (const uint32_t word : {1u, 0x3f800000u, 0x80000000u}) {
    const CastOutputs got = cast({tensor}, {.skip = {word}});
    EXPECT_TRUE(untouched_from(got.arena, 0));
    EXPECT_EQ(got.tensors[0].amax, 0.25f);
    EXPECT_TRUE(untouched_from(std::vector{got.tensors[0].scale_inv}, 0));
  }
}

}  // namespace
}  // namespace moejit::testing
