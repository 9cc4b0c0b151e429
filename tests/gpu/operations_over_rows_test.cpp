// SPDX-License-Identifier: Apache-2.0
// Operations over permuted rows and their columns, against the reference. Where a result depends on
// the order of roundings, inputs are such that nothing is rounded.
#include "runtime/reference/activation.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/transpose.h"
#include "tests/gpu/c_operation.h"
#include "tests/support/matchers.h"

namespace moejit::testing {
namespace {

using reference::bf16_from_float;

constexpr int64_t kGroups = 4;

// Four groups, one of them empty, with pad rows between them: 96 rows in memory for 110.
struct Groups {
  explicit Groups(int32_t alignment = 16) {
    route.counts = {20, 0, 37, 9};
    route.offs = {0};
    for (const int32_t count : route.counts)
      route.offs.push_back(route.offs.back() + (count + alignment - 1) / alignment * alignment);
    route.row_map.assign(66, -1);
  }
  void give_to(COperation& operation) const {
    operation.give("counts", {kGroups}, route.counts);
    operation.give("offs", {kGroups + 1}, route.offs);
  }
  template <typename Element>
  std::vector<Element> rows_of(std::vector<Element> values, int64_t columns) const {
    values.resize(static_cast<std::size_t>(route.rows() * columns));
    return values;
  }
  reference::Route route;
};
constexpr int64_t kGroupRows = 110;

// Whole numbers from -2 to 2.
std::vector<uint16_t> small_numbers(int64_t count, uint64_t seed) {
  const reference::RandomStream random(seed, 1);
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        bf16_from_float(static_cast<float>(random.below(static_cast<uint64_t>(i), 5) - 2)));
  return values;
}

std::vector<uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(bf16_from_float(value));
  return bits;
}

// relu(up)^2 needs no function that hardware approximates.
constexpr const char kSwiglu[] = "swiglu", kRelu[] = "relu_squared";
constexpr int64_t kActivationColumns = 128;

class OperationOverRows : public COperationTest {
 protected:
  void give_inputs(COperation& operation) const {
    operation.give("input", {kGroupRows, kActivationColumns}, h1_);
    operation.give("probs", {kGroupRows}, probs_);
    groups_.give_to(operation);
  }
  const Groups groups_;
  const std::vector<uint16_t> h1_ = small_numbers(kGroupRows * kActivationColumns, 1);
  const std::vector<uint16_t> dact_ = small_numbers(kGroupRows * kActivationColumns, 2);
  const std::vector<float> probs_ = std::vector<float>(kGroupRows, 0.125F);
};

TEST_F(OperationOverRows, ActivatesAndQuantizes) {
  COperation bf16(example_operation("activation", kSwiglu, kRelu));
  COperation fp8(example_operation("activation_quantize", kSwiglu, kRelu));
  give_inputs(bf16);
  give_inputs(fp8);
  bf16.want("output", {kGroupRows, kActivationColumns});
  fp8.want("output", {kGroupRows, kActivationColumns});
  fp8.want("output_scale_inv", {kGroupRows, 1});
  ASSERT_TRUE(is_ok(bf16.run()));
  ASSERT_TRUE(is_ok(fp8.run()));
  const auto relu = reference::relu_squared_activation();
  const auto wanted =
      reference::activation_quantize(h1_, probs_, groups_.route, kActivationColumns, 1, relu);
  EXPECT_TRUE(matches(compare_e4m3({"output", kActivationColumns},
                                   groups_.rows_of(fp8.read<uint8_t>("output"), kActivationColumns),
                                   wanted.q)));
  EXPECT_TRUE(matches(compare_f32({"output_scale_inv"},
                                  groups_.rows_of(fp8.read<float>("output_scale_inv"), 1),
                                  wanted.scale_inv)));
  auto values =
      bf16_of(reference::activate(h1_, probs_, groups_.route.rows(), kActivationColumns, relu));
  const auto real = reference::real_rows(groups_.route);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (real[i / kActivationColumns] == 0) values[i] = 0;
  EXPECT_TRUE(matches(
      compare_bf16({"output", kActivationColumns},
                   groups_.rows_of(bf16.read<uint16_t>("output"), kActivationColumns), values)));
}

TEST_F(OperationOverRows, MakesTheGradientsOfAnActivation) {
  COperation bf16(example_operation("activation_backward", kSwiglu, kRelu));
  COperation fp8(example_operation("activation_backward_quantize", kSwiglu, kRelu));
  for (COperation* operation : {&bf16, &fp8}) {
    give_inputs(*operation);
    operation->give("gradient", {kGroupRows, kActivationColumns}, dact_);
    operation->want("output", {kGroupRows, kActivationColumns});
    operation->want("output_dprobs", {kGroupRows, 1});
  }
  fp8.want("output_scale_inv", {kGroupRows, 1});
  ASSERT_TRUE(is_ok(bf16.run()));
  ASSERT_TRUE(is_ok(fp8.run()));
  const auto relu = reference::relu_squared_activation();
  const auto wanted = reference::activation_backward_quantize(h1_, dact_, probs_, groups_.route,
                                                              kActivationColumns, 1, relu);
  EXPECT_TRUE(matches(compare_e4m3({"output", kActivationColumns},
                                   groups_.rows_of(fp8.read<uint8_t>("output"), kActivationColumns),
                                   wanted.q)));
  EXPECT_TRUE(matches(compare_f32({"output_scale_inv"},
                                  groups_.rows_of(fp8.read<float>("output_scale_inv"), 1),
                                  wanted.scale_inv)));
  auto exact = reference::activation_backward(h1_, dact_, probs_, groups_.route.rows(),
                                              kActivationColumns, relu);
  clear_pad_rows(exact, groups_.route, kActivationColumns);
  EXPECT_TRUE(matches(compare_bf16(
      {"output", kActivationColumns},
      groups_.rows_of(bf16.read<uint16_t>("output"), kActivationColumns), bf16_of(exact.up))));
  const std::vector<float> dprobs(wanted.dprobs_blocks.begin(), wanted.dprobs_blocks.end());
  for (const COperation* operation : {&bf16, &fp8})
    EXPECT_TRUE(matches(compare_f32(
        {"output_dprobs"}, groups_.rows_of(operation->read<float>("output_dprobs"), 1), dprobs)));
}

// The group of 37 rows begins at row 32 and at column 128; nothing ends at the last column.
TEST_F(OperationOverRows, TransposesWithScales) {
  constexpr int64_t kWidth = 256, kOutput = 512;
  COperation operation(example_operation("transpose"));
  const auto input = reference::quantize_1x128(reference::random_activations(kGroupRows, kWidth, 3),
                                               kGroupRows, kWidth);
  const std::vector<int32_t> starts = {0, 128, 128, 256, 384};
  operation.give("input", {kGroupRows, kWidth}, input.q);
  operation.give("input_scale_inv", {kGroupRows, 2}, input.scale_inv);
  groups_.give_to(operation);
  operation.give("output_offs", {kGroups + 1}, starts);
  operation.give("output", {kOutput / 128, kWidth, 128},
                 std::vector<uint8_t>(kOutput * kWidth, 0x55));
  operation.want("output_scale_inv", {2, kOutput / 128});
  ASSERT_TRUE(is_ok(operation.run()));
  const auto wanted =
      reference::transpose(input, {groups_.route.counts, groups_.route.offs, starts}, kOutput,
                           reference::Fp8Format::kE4m3, reference::TransposeRule::kIdeal, 0x55);
  EXPECT_TRUE(matches(compare_e4m3({"output"}, operation.read<uint8_t>("output"),
                                   reference::to_column_blocks(wanted.bytes, kOutput))));
  const auto scales = operation.read<float>("output_scale_inv");
  for (const std::size_t tile : {0, 1, 2, 4, 5, 6})  // the others belong to no group
    EXPECT_EQ(scales[tile], wanted.scale_inv[tile]) << tile;
}

TEST_F(OperationOverRows, MultipliesWithTheMatrixOfEachGroup) {
  constexpr int64_t kK = 256, kN = 256;
  const auto a = reference::quantize_1x128(small_numbers(kGroupRows * kK, 4), kGroupRows, kK);
  const auto first_of_a = reference::quantize_1x128(small_numbers(groups_.route.rows() * kK, 4),
                                                    groups_.route.rows(), kK);
  const auto b =
      reference::quantize_128x128(small_numbers(kGroups * kN * kK, 5), kGroups, kN, kK, 1);
  COperation operation(example_operation("grouped_gemm"));
  operation.give("a", {kGroupRows, kK}, a.q);
  operation.give("a_scale_inv", {kGroupRows, 2}, a.scale_inv);
  operation.give("b", {kGroups, kN, kK}, b.q);
  operation.give("b_scale_inv", {kGroups, 2, 2}, b.scale_inv);
  groups_.give_to(operation);
  operation.want("d", {kGroupRows, kN});
  ASSERT_TRUE(is_ok(operation.run()));
  EXPECT_TRUE(matches(compare_bf16({"d", kN}, groups_.rows_of(operation.read<uint16_t>("d"), kN),
                                   reference::grouped_gemm(first_of_a, b, groups_.route))));
}

TEST_F(OperationOverRows, MultipliesInBf16) {
  constexpr int64_t kK = 256, kN = 256;
  const auto a = small_numbers(kGroupRows * kK, 6), b = small_numbers(kGroups * kN * kK, 7);
  COperation operation(example_operation("grouped_gemm", "row_block", "none"));
  operation.give("a", {kGroupRows, kK}, a);
  operation.give("b", {kGroups, kN, kK}, b);
  groups_.give_to(operation);
  operation.want("d", {kGroupRows, kN});
  ASSERT_TRUE(is_ok(operation.run()));
  const auto wanted =
      reference::bf16_grouped_gemm(a, {.values = b, .columns = kN, .depth = kK}, groups_.route);
  EXPECT_TRUE(
      matches(compare_bf16({"d", kN}, groups_.rows_of(operation.read<uint16_t>("d"), kN), wanted)));
}

TEST_F(OperationOverRows, MultipliesOverTheTokensOfEachGroup) {
  constexpr int64_t kA = 256, kB = 128, kGroupColumns = 384;
  const Groups groups(128);
  COperation operation(example_operation("contraction_grouped_gemm"));
  // Columns that belong to no token are zeros.
  const auto operand = [&](int64_t rows, uint64_t seed) {
    auto values = small_numbers(rows * kGroupColumns, seed);
    const auto real = reference::real_rows(groups.route);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (real[i % kGroupColumns] == 0) values[i] = 0;
    reference::QuantizedRows tiles{.rows = rows, .cols = kGroupColumns, .q = {}, .scale_inv = {}};
    for (const uint16_t value : values)
      tiles.q.push_back(reference::encode_e4m3(reference::float_from_bf16(value)));
    tiles.scale_inv.assign(static_cast<std::size_t>(rows * 3), 0.25F);
    return tiles;
  };
  const auto a = operand(kA, 8), b = operand(kB, 9);
  operation.give("a", {3, kA, 128}, reference::to_column_blocks(a.q, kGroupColumns));
  operation.give("b", {3, kB, 128}, reference::to_column_blocks(b.q, kGroupColumns));
  operation.give("a_scale_inv", {2, 3}, std::vector<float>(6, 0.25F));
  operation.give("b_scale_inv", {1, 3}, std::vector<float>(3, 0.25F));
  groups.give_to(operation);
  operation.want("d", {kGroups, kA, kB});
  ASSERT_TRUE(is_ok(operation.run()));
  EXPECT_TRUE(matches(compare_f32({"d", kB}, operation.read<float>("d"),
                                  reference::weight_gradient(a, b, groups.route))));
}

// Without tokens nothing is read, but every gradient is written.
TEST_F(OperationOverRows, GivesZerosWithoutTokens) {
  COperation operation(example_operation("contraction_grouped_gemm"));
  operation.want("a", {0, 256, 128});
  operation.want("b", {0, 128, 128});
  operation.want("a_scale_inv", {2, 0});
  operation.want("b_scale_inv", {1, 0});
  operation.give("counts", {kGroups}, std::vector<int32_t>(kGroups, 0));
  operation.give("offs", {kGroups + 1}, std::vector<int32_t>(kGroups + 1, 0));
  operation.want("d", {kGroups, 256, 128});
  ASSERT_TRUE(is_ok(operation.run()));
  EXPECT_EQ(operation.read<float>("d"), std::vector<float>(kGroups * 256 * 128, 0.0F));
}

using OperationOverLists = COperationTest;

TEST_F(OperationOverLists, CastsAndTransposesEveryTensor) {
  COperation operation(example_operation("multi_cast_transpose"));
  struct Item {
    moejit_cast_transpose_tensor tensor = {};
    std::vector<float> values = {};
  };
  std::vector<Item> items;
  std::vector<moejit_cast_transpose_tensor> list;
  std::vector<int64_t> ends;
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{256, 256}, {128, 384}, {48, 80}}) {
    const int64_t count = rows * columns;
    const auto input = reference::random_activations(rows, columns, 10);
    Item& item = items.emplace_back();
    for (const uint16_t bits : input) item.values.push_back(reference::float_from_bf16(bits));
    item.tensor = {.input = operation.give_memory(input),
                   .output = static_cast<uint8_t*>(operation.want_memory(count)),
                   .output_colwise = static_cast<uint8_t*>(operation.want_memory(count)),
                   .scale = static_cast<float*>(operation.give_memory(std::vector<float>{4.0F})),
                   .amax = static_cast<float*>(operation.give_memory(std::vector<float>{0.0F})),
                   .scale_inv = nullptr,
                   .rows = rows,
                   .columns = columns};
    list.push_back(item.tensor);
    ends.push_back((ends.empty() ? 0 : ends.back()) + (rows + 127) / 128 * ((columns + 127) / 128));
  }
  operation.give("tensors", {3, 8}, list);
  operation.give("tile_ends", {3}, ends);
  ASSERT_TRUE(is_ok(operation.run()));
  for (const Item& item : items) {
    const moejit_cast_transpose_tensor& tensor = item.tensor;
    const auto wanted = reference::cast_transpose(item.values, tensor.rows, tensor.columns, 4.0F,
                                                  reference::Fp8Format::kE4m3);
    const int64_t count = tensor.rows * tensor.columns;
    EXPECT_EQ(COperation::read_at<uint8_t>(tensor.output, count), wanted.bytes);
    EXPECT_EQ(COperation::read_at<uint8_t>(tensor.output_colwise, count), wanted.colwise);
    EXPECT_EQ(COperation::read_at<float>(tensor.amax, 4), std::vector<float>{wanted.amax});
  }
}

}  // namespace
}  // namespace moejit::testing
