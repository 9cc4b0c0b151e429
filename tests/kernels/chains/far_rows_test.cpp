// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/casts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/multi_cast_transpose_params.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"

namespace moejit::testing {
namespace {

using FarRows = Chains;

// One token with two destinations, one of them beyond 2^31 elements: a 32-bit offset would wrap
// around to other rows or out of the buffer. The group is full, so nothing else is written.
TEST_F(FarRows, ArePermutedToOffsetsBeyond31Bits) {
  constexpr int64_t kColumns = 65536;
  constexpr int64_t kBlocks = kColumns / 128;
  constexpr int32_t kRows = (int32_t{1} << 15) + 64;  // times 2^16 columns: over 2^31
  constexpr int32_t kNear = 3, kFar = kRows - 7;
  static_assert(int64_t{kFar} * kColumns > (int64_t{1} << 31));

  const std::vector<uint16_t> x = reference::random_activations(1, kColumns, 1);
  const auto wanted = reference::quantize_1x128(x, 1, kColumns);
  const DeviceBuffer x_q = input("x_q", wanted.q);
  const DeviceBuffer x_scale_inv = input("x_scale_inv", wanted.scale_inv);
  const DeviceBuffer probs = input("topk_probs", std::vector<float>{0.25f, 0.75f});
  const DeviceBuffer row_map = input("row_map", std::vector<int32_t>{kFar, kNear});
  const DeviceBuffer counts = input("counts", std::vector<int32_t>{kRows});
  const DeviceBuffer offs = input("offs", std::vector<int32_t>{0, kRows});
  const DeviceBuffer q = output<uint8_t>("permuted_q", kRows * kColumns);
  const DeviceBuffer scale_inv = output<float>("permuted_scale_inv", kRows * kBlocks);
  const DeviceBuffer out_probs = output<float>("permuted_probs", kRows);
  const device::RowChainParams params{.input = x_q.as<const void>(),
                                      .input_scale_inv = x_scale_inv.as<const float>(),
                                      .probs = probs.as<const float>(),
                                      .row_map = row_map.as<const int32_t>(),
                                      .counts = counts.as<const int32_t>(),
                                      .offs = offs.as<const int32_t>(),
                                      .output = q.as<void>(),
                                      .output_scale_inv = scale_inv.as<float>(),
                                      .output_probs = out_probs.as<float>(),
                                      .rows = 1};
  const compiler::RowChainSpec spec{.load = compiler::LoadStage::kQuantizedRows,
                                    .quantize = compiler::QuantizeStage::kKeep,
                                    .store = compiler::StoreStage::kPermuted,
                                    .columns = static_cast<int32_t>(kColumns),
                                    .local_experts = 1,
                                    .top_k = 2};
  run(spec, 2, params,
      {&x_q, &x_scale_inv, &probs, &row_map, &counts, &offs, &q, &scale_inv, &out_probs});

  for (const int64_t row : {int64_t{kNear}, int64_t{kFar}}) {
    SCOPED_TRACE(row);
    EXPECT_TRUE(matches(compare_e4m3({"permuted_q", kColumns},
                                     q.download<uint8_t>(row * kColumns, kColumns), wanted.q)));
    EXPECT_TRUE(
        matches(compare_f32({"permuted_scale_inv", kBlocks},
                            scale_inv.download<float>(row * kBlocks, kBlocks), wanted.scale_inv)));
  }
  EXPECT_EQ(out_probs.download<float>(kFar, 1).front(), 0.25f);
  EXPECT_EQ(out_probs.download<float>(kNear, 1).front(), 0.75f);
  // Where the far row would lie with an offset of 32 bits.
  const int64_t wrapped = int64_t{kFar} * kColumns - (int64_t{1} << 31);
  EXPECT_TRUE(untouched_from(q.download<uint8_t>(wrapped, kColumns), 0));
}

// The address at which a tensor would begin whose part from element `first` on is this memory.
template <typename T>
T* begin_of(const DeviceBuffer& part, int64_t first) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(part.as<T>()) -
                              static_cast<uintptr_t>(first) * sizeof(T));
}

// The last tile alone of a tensor of more than 2^31 elements, of which only its rows, and its
// columns in the transpose, are in memory. A tensor before it that ends at minus that tile makes it
// the first of the list.
TEST_F(FarRows, AreCastFromAndToOffsetsBeyond31Bits) {
  constexpr int64_t kTile = 128, kColumns = 65536, kRows = (int64_t{1} << 15) + 256;
  constexpr int64_t kFirstRow = kRows - kTile, kFirstColumn = kColumns - kTile;
  static_assert(kFirstRow * kColumns > (int64_t{1} << 31));
  static_assert(kFirstColumn * kRows > (int64_t{1} << 31));

  const std::vector<uint16_t> tile = reference::random_activations(kTile, kTile, 2);
  std::vector<uint16_t> rows(kTile * kColumns);
  std::vector<float> values;
  for (int64_t i = 0; i < kTile * kTile; ++i) {
    const uint16_t value = tile[static_cast<size_t>(i)];
    rows[static_cast<size_t>(i / kTile * kColumns + kFirstColumn + i % kTile)] = value;
    values.push_back(reference::float_from_bf16(value));
  }
  const DeviceBuffer x = input("x", rows);
  const DeviceBuffer q = output<uint8_t>("q", kTile * kColumns);
  const DeviceBuffer colwise = output<uint8_t>("colwise_q", kTile * kRows);
  const device::CastTransposeTensor far{
      .input = begin_of<const uint16_t>(x, kFirstRow * kColumns),
      .output = begin_of<uint8_t>(q, kFirstRow * kColumns),
      .output_colwise = begin_of<uint8_t>(colwise, kFirstColumn * kRows),
      .scale = nullptr,
      .amax = nullptr,
      .scale_inv = nullptr,
      .rows = kRows,
      .columns = kColumns};
  constexpr int64_t kTiles = (kRows / kTile) * (kColumns / kTile);
  const DeviceBuffer tensors = input("tensors", std::vector{device::CastTransposeTensor{}, far});
  const DeviceBuffer tile_ends = input("tile_ends", std::vector<int64_t>{1 - kTiles, 1});
  const device::MultiCastTransposeParams params{
      .tensors = tensors.as<const device::CastTransposeTensor>(),
      .tile_ends = tile_ends.as<const int64_t>(),
      .skip = nullptr,
      .count = 2};
  run(compiler::MultiCastTransposeSpec{}, 1, params, {&x, &q, &colwise, &tensors, &tile_ends});

  const auto wanted =
      reference::cast_transpose(values, kTile, kTile, 1.0f, reference::Fp8Format::kE4m3);
  std::vector<uint8_t> got, got_colwise;
  for (int64_t i = 0; i < kTile; ++i) {
    const auto row = q.download<uint8_t>(i * kColumns + kFirstColumn, kTile);
    const auto column = colwise.download<uint8_t>(i * kRows + kFirstRow, kTile);
    got.insert(got.end(), row.begin(), row.end());
    got_colwise.insert(got_colwise.end(), column.begin(), column.end());
  }
  EXPECT_TRUE(matches(compare_e4m3({"q", kTile}, got, wanted.bytes)));
  EXPECT_TRUE(matches(compare_e4m3({"colwise_q", kTile}, got_colwise, wanted.colwise)));
}

}  // namespace
}  // namespace moejit::testing
