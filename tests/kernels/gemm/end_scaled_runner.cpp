// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/end_scaled_runner.h"

#include "compiler/planner/check_grouped_gemm.h"
#include "compiler/planner/grouped_gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/grouped_gemm_params.h"
#include "tests/kernels/gemm/tile_errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GemmScales;
using compiler::GroupedGemmSpec;
using reference::EndScaledOperands;
using reference::RandomStream;
using reference::Route;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Products that the tensor cores add before anybody else does.
int64_t chain_length(const GroupedGemmSpec& spec) {
  return compiler::is_one_chain(spec) ? spec.k : spec.blocks_per_promotion * reference::kBlock;
}

// Of a row or a tile: what rounding to bf16 can cost, and for e4m3 the tensor cores' share. That is
// as in gemm_runner.cpp for short chains. In a long one the sum so far loses, with every 32
// products, up to 2^-13 of the largest term and 2^-14 in the mean, each time towards zero; the
// terms are smaller than the result in the mean of a row, since sums grow with the square root of
// their length.
double largest_error(const GroupedGemmSpec& spec) {
  if (spec.operands == compiler::DType::kBF16) return 0x1p-8 + 0x1p-16;
  const auto groups = static_cast<double>(chain_length(spec) / 32);
  return 0x1p-8 + 0x1p-10 + groups * 0x1p-14;
}

// `value(i)` where the scale is one of an element, `value(0)` of group 0, ... where it is a
// tensor's, 1 where there is none.
template <typename Value>
std::vector<float> scales_of(GemmScales scales, int64_t groups, int64_t elements,
                             const Value& value) {
  std::vector<float> all;
  for (int64_t i = 0; i < groups * elements; ++i) {
    const int64_t which = scales == GemmScales::kRowColumn ? i : i / elements;
    all.push_back(scales == GemmScales::kNone ? 1.0f : value(static_cast<uint64_t>(which)));
  }
  return all;
}

EndScaledOperands empty_operands(const GroupedGemmSpec& spec, int64_t rows) {
  EndScaledOperands operands{.is_bf16 = spec.operands == compiler::DType::kBF16,
                             .rows = rows,
                             .columns = int64_t{spec.sections} * spec.section_n,
                             .depth = spec.k};
  operands.a.resize(static_cast<size_t>(rows * spec.k));
  operands.b.resize(static_cast<size_t>(spec.local_experts * operands.columns * spec.k));
  return operands;
}

template <typename Value>
void fill_scales(const GroupedGemmSpec& spec, EndScaledOperands& operands, const Value& value) {
  operands.a_scale = scales_of(spec.scales, 1, operands.rows, value);
  operands.b_scale = scales_of(spec.scales, spec.local_experts, operands.columns,
                               [&](uint64_t i) { return value(i + 1'000'000); });
}

// As the kernel reads them: one a group where they are a tensor's.
std::vector<float> stored_scales(GemmScales scales, const std::vector<float>& all, int64_t groups) {
  if (scales == GemmScales::kNone) return {};
  if (scales == GemmScales::kRowColumn) return all;
  std::vector<float> stored;
  const auto elements = static_cast<size_t>(std::ssize(all) / groups);
  for (size_t group = 0; group < static_cast<size_t>(groups); ++group)
    stored.push_back(all[group * elements]);
  return stored;
}

std::vector<uint8_t> encoded(const EndScaledOperands& operands, const std::vector<float>& values) {
  std::vector<uint8_t> bytes;
  for (const float value : values) {
    if (!operands.is_bf16) {
      bytes.push_back(reference::encode_e4m3(value));
      continue;
    }
    const uint16_t bits = reference::bf16_from_float(value);
    bytes.push_back(static_cast<uint8_t>(bits & 0xff));
    bytes.push_back(static_cast<uint8_t>(bits >> 8));
  }
  return bytes;
}

// [E, columns, depth] to [E, depth, columns].
std::vector<float> mn_major_b(const EndScaledOperands& operands) {
  const int64_t columns = operands.columns, depth = operands.depth;
  std::vector<float> turned(operands.b.size());
  for (int64_t i = 0; i < std::ssize(operands.b); ++i) {
    const int64_t expert = i / (columns * depth), column = i / depth % columns, k = i % depth;
    turned[static_cast<size_t>((expert * depth + k) * columns + column)] =
        operands.b[static_cast<size_t>(i)];
  }
  return turned;
}

EndScaledOperands with_poisoned_pad_rows(const GroupedGemmSpec& spec, const Route& route,
                                         EndScaledOperands operands) {
  const auto real = reference::real_rows(route);
  for (int64_t row = 0; row < operands.rows; ++row) {
    if (row < std::ssize(real) && real[static_cast<size_t>(row)] != 0) continue;
    std::fill_n(operands.a.begin() + row * spec.k, spec.k, kNaN);
    if (spec.scales == GemmScales::kRowColumn) operands.a_scale[static_cast<size_t>(row)] = kNaN;
  }
  return operands;
}

}  // namespace

EndScaledOperands integer_operands(const GroupedGemmSpec& spec, int64_t rows, uint64_t seed) {
  EndScaledOperands operands = empty_operands(spec, rows);
  const RandomStream random(seed, 0), exponents(seed, 1);
  uint64_t next = 0;
  for (std::vector<float>* values : {&operands.a, &operands.b})
    for (float& value : *values) value = static_cast<float>(random.below(next++, 5) - 2);
  fill_scales(spec, operands, [&](uint64_t i) {
    return std::ldexp(1.0f, static_cast<int>(exponents.below(i, 5) - 2));
  });
  return operands;
}

EndScaledOperands random_operands(const GroupedGemmSpec& spec, int64_t rows, uint64_t seed) {
  EndScaledOperands operands = empty_operands(spec, rows);
  const RandomStream random(seed, 0), scales(seed, 1);
  uint64_t next = 0;
  for (std::vector<float>* values : {&operands.a, &operands.b}) {
    for (float& value : *values) {
      const double normal = random.normal(next++);
      value =
          operands.is_bf16
              ? reference::float_from_bf16(reference::bf16_from_float(static_cast<float>(normal)))
              : reference::decode_e4m3(reference::encode_e4m3(static_cast<float>(64.0 * normal)));
    }
  }
  fill_scales(spec, operands,
              [&](uint64_t i) { return static_cast<float>(0.5 + 1.5 * scales.uniform(i)); });
  return operands;
}

GroupedGemmSpec EndScaledGemmTest::problem(const EndScaledKind& kind, int32_t experts,
                                           int32_t sections, int32_t section_n, int32_t k,
                                           int64_t largest_group) {
  const GroupedGemmSpec problem{.operands = kind.scales == GemmScales::kNone
                                                ? compiler::DType::kBF16
                                                : compiler::DType::kF8E4M3,
                                .scales = kind.scales,
                                .accumulation = kind.accumulation,
                                .b_major = kind.b_major,
                                .local_experts = experts,
                                .sections = sections,
                                .section_n = section_n,
                                .k = k};
  EXPECT_TRUE(succeeded(compiler::check_grouped_gemm(problem)));
  return kind.is_swapped ? compiler::choose_swapped_tiles(problem, largest_group)
                         : compiler::choose_tiles(problem);
}

std::vector<uint16_t> EndScaledGemmTest::multiply(const GroupedGemmSpec& spec, const Route& route,
                                                  const EndScaledOperands& given, int64_t ctas) {
  constexpr int64_t kBeyond = 130;
  const EndScaledOperands operands = with_poisoned_pad_rows(spec, route, given);
  const bool has_scales = spec.scales != GemmScales::kNone;
  const DeviceBuffer a = input("a", encoded(operands, operands.a));
  const DeviceBuffer b = input(
      "b",
      encoded(operands, spec.b_major == compiler::Major::kMn ? mn_major_b(operands) : operands.b));
  std::vector<DeviceBuffer> scales;
  if (has_scales) {
    scales.push_back(input("a_scale_inv", stored_scales(spec.scales, operands.a_scale, 1)));
    scales.push_back(
        input("b_scale_inv", stored_scales(spec.scales, operands.b_scale, spec.local_experts)));
  }
  const DeviceBuffer counts = input("counts", route.counts);
  const DeviceBuffer offs = input("offs", route.offs);
  const int64_t n = operands.columns;
  const DeviceBuffer d = output<uint16_t>("d", (operands.rows + kBeyond) * n);
  const auto a_maps = compiler::grouped_gemm_tensor_maps(spec, operands.rows, {});
  const auto d_maps = compiler::grouped_gemm_tensor_maps(spec, operands.rows + kBeyond, {});
  const device::GroupedGemmParams params{
      .a_map = tensor_map(a_maps[0].box, a),
      .b_map = tensor_map(a_maps[1].box, b),
      .d_map = spec.is_swapped ? device::TensorMap{} : tensor_map(d_maps[2].box, d),
      .a_scale_inv = has_scales ? scales[0].as<const float>() : nullptr,
      .b_scale_inv = has_scales ? scales[1].as<const float>() : nullptr,
      .d = d.as<device::Bf16>(),
      .counts = counts.as<const int32_t>(),
      .offs = offs.as<const int32_t>()};
  std::vector<const DeviceBuffer*> buffers = {&a, &b, &counts, &offs, &d};
  for (const DeviceBuffer& scale : scales) buffers.push_back(&scale);
  run(spec, ctas, params, buffers);
  const auto values = d.download<uint16_t>();
  EXPECT_TRUE(untouched_from(values, route.rows() * n));
  return head(values, route.rows() * n);
}

void EndScaledGemmTest::expect_exact(const GroupedGemmSpec& spec, const Route& route,
                                     uint64_t seed) {
  expect_exact(spec, route, integer_operands(spec, route.rows(), seed));
}

void EndScaledGemmTest::expect_exact(const GroupedGemmSpec& spec, const Route& route,
                                     const EndScaledOperands& operands) {
  std::vector<uint16_t> wanted;
  for (const double value : reference::end_scaled_gemm_exact(operands, route, spec.k).value) {
    ASSERT_TRUE(std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value);
    wanted.push_back(reference::bf16_from_float(static_cast<float>(value)));
  }
  const auto got = multiply(spec, route, operands);
  EXPECT_TRUE(matches(compare_bf16({"d", operands.columns}, got, wanted)));
}

void EndScaledGemmTest::expect_close(const GroupedGemmSpec& spec, const Route& route,
                                     uint64_t seed) {
  const EndScaledOperands operands = random_operands(spec, route.rows(), seed);
  const auto wanted = reference::end_scaled_gemm_exact(operands, route, chain_length(spec));
  const auto got = multiply(spec, route, operands);
  const auto compared = compare_bf16_within({"d", operands.columns}, got, wanted.value,
                                            kOnGpu ? wanted.bound : wanted.fp32_bound);
  const TileErrors errors = tile_errors(got, wanted.value, operands.columns);
  EXPECT_TRUE(matches(compared)) << errors.report;
  EXPECT_LE(errors.worst_row, largest_error(spec)) << errors.report;
  EXPECT_LE(errors.worst_tile, largest_error(spec)) << errors.report;
}

}  // namespace moejit::testing
