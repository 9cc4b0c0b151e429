// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/end_scaled_runner.h"

#include "compiler/planner/grouped_gemm.h"
#include "compiler/support/integer.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/grouped_gemm_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GemmScales;
using compiler::GroupedGemmSpec;
using reference::EndScaledOperands;
using reference::Fp8Format;
using reference::RandomStream;
using reference::Route;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Products that the tensor cores add before anybody else does.
int64_t chain_length(const GroupedGemmSpec& spec) {
  return compiler::is_one_chain(spec) ? spec.k : spec.blocks_per_promotion * reference::kBlock;
}

// Scales of elements that belong to `experts`: `value(i)` where the scale is the element's own,
// `value(e)` where it is its expert's, 1 where there is none.
template <typename Value>
std::vector<float> scales_of(GemmScales scales, const std::vector<uint64_t>& experts,
                             const Value& value) {
  std::vector<float> all;
  for (size_t i = 0; i < experts.size(); ++i) {
    const uint64_t which = scales == GemmScales::kRowColumn ? i : experts[i];
    all.push_back(scales == GemmScales::kNone ? 1.0f : value(which));
  }
  return all;
}

// The expert of each row, pad rows included.
std::vector<uint64_t> experts_of_rows(const Route& route) {
  std::vector<uint64_t> experts;
  for (uint64_t expert = 0; expert < route.counts.size(); ++expert)
    experts.resize(static_cast<size_t>(route.offs[expert + 1]), expert);
  return experts;
}

EndScaledOperands empty_operands(const GroupedGemmSpec& spec, const Route& route) {
  EndScaledOperands operands{.is_bf16 = spec.operands == compiler::DType::kBF16,
                             .a_format = spec.is_a_e5m2 ? Fp8Format::kE5m2 : Fp8Format::kE4m3,
                             .order = spec.scales == GemmScales::kRowColumn
                                          ? reference::ScaleOrder::kRowThenColumn
                                          : reference::ScaleOrder::kProductOfScales,
                             .rows = route.rows(),
                             .columns = int64_t{spec.sections} * spec.section_n,
                             .depth = spec.k};
  operands.a.resize(static_cast<size_t>(operands.rows * spec.k));
  operands.b.resize(static_cast<size_t>(spec.local_experts * operands.columns * spec.k));
  return operands;
}

template <typename Value>
void fill_scales(const GroupedGemmSpec& spec, const Route& route, EndScaledOperands& operands,
                 const Value& value) {
  std::vector<uint64_t> experts_of_columns;
  for (int64_t i = 0; i < spec.local_experts * operands.columns; ++i)
    experts_of_columns.push_back(static_cast<uint64_t>(i / operands.columns));
  operands.a_scale = scales_of(spec.scales, experts_of_rows(route), value);
  operands.b_scale =
      scales_of(spec.scales, experts_of_columns, [&](uint64_t i) { return value(i + 1'000'000); });
}

// As the kernel reads them: those of experts without rows are read by nobody.
std::vector<float> stored_a_scales(GemmScales scales, const Route& route,
                                   const EndScaledOperands& operands) {
  if (scales == GemmScales::kRowColumn) return operands.a_scale;
  std::vector<float> stored(route.counts.size(), kNaN);
  for (size_t expert = 0; expert < stored.size(); ++expert)
    if (route.counts[expert] > 0)
      stored[expert] = operands.a_scale[static_cast<size_t>(route.offs[expert])];
  return stored;
}
std::vector<float> stored_b_scales(GemmScales scales, const EndScaledOperands& operands) {
  if (scales == GemmScales::kRowColumn) return operands.b_scale;
  std::vector<float> stored;
  for (int64_t i = 0; i < std::ssize(operands.b_scale); i += operands.columns)
    stored.push_back(operands.b_scale[static_cast<size_t>(i)]);
  return stored;
}

// A power of two for each 128 of k of a row or column, those of the second half as those of the
// first.
float chain_size(const RandomStream& random, int64_t row, int64_t k, int64_t depth) {
  const int64_t chains = depth / reference::kBlock;
  const int64_t chain = k / reference::kBlock;
  const int64_t same = chain < chains ? std::min(chain, chains - 1 - chain) : chain;
  const auto exponent = random.below(static_cast<uint64_t>(row * (chains + 1) + same), 16) - 8;
  return std::ldexp(1.0f, static_cast<int>(exponent));
}

std::vector<uint8_t> encoded(const EndScaledOperands& operands, const std::vector<float>& values,
                             Fp8Format format) {
  std::vector<uint8_t> bytes;
  for (const float value : values) {
    if (!operands.is_bf16) {
      bytes.push_back(reference::encode_fp8(value, format));
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

EndScaledOperands integer_operands(const GroupedGemmSpec& spec, const Route& route, uint64_t seed) {
  EndScaledOperands operands = empty_operands(spec, route);
  const RandomStream random(seed, 0), exponents(seed, 1);
  uint64_t next = 0;
  for (std::vector<float>* values : {&operands.a, &operands.b})
    for (float& value : *values) value = static_cast<float>(random.below(next++, 5) - 2);
  fill_scales(spec, route, operands, [&](uint64_t i) {
    return std::ldexp(1.0f, static_cast<int>(exponents.below(i, 5) - 2));
  });
  return operands;
}

EndScaledOperands cancelling_operands(const GroupedGemmSpec& spec, const Route& route,
                                      uint64_t seed) {
  EndScaledOperands operands = integer_operands(spec, route, seed);
  const int64_t depth = operands.depth;
  const int64_t undone = depth / reference::kBlock / 2 * reference::kBlock;
  const int64_t end = depth / reference::kBlock * reference::kBlock;
  uint64_t purpose = 2;
  for (std::vector<float>* values : {&operands.a, &operands.b}) {
    const RandomStream random(seed, purpose++);
    const float sign = values == &operands.a ? -1.0f : 1.0f;
    for (int64_t i = 0; i < std::ssize(*values); ++i) {
      const int64_t row = i / depth, k = i % depth;
      float& value = (*values)[static_cast<size_t>(i)];
      if (k >= end - undone && k < end)
        value = sign * (*values)[static_cast<size_t>(row * depth + end - 1 - k)];
      else
        value *= chain_size(random, row, k, depth);
    }
  }
  return operands;
}

EndScaledOperands halfway_operands(const GroupedGemmSpec& spec, const Route& route, uint64_t seed) {
  EndScaledOperands operands = integer_operands(spec, route, seed);
  const RandomStream random(seed, 4);
  const auto value = [&](uint64_t i) { return static_cast<float>(0.5 + 1.5 * random.uniform(i)); };
  fill_scales(spec, route, operands, value);
  for (size_t expert = 0; expert < route.counts.size(); ++expert) {
    const int64_t row = route.offs[expert];
    const int64_t column = static_cast<int64_t>(expert) * operands.columns +
                           static_cast<int64_t>(expert) % operands.columns;
    double sum = 0.0;
    for (int64_t k = 0; k < operands.depth; ++k)
      sum += static_cast<double>(operands.a[static_cast<size_t>(row * operands.depth + k)]) *
             operands.b[static_cast<size_t>(column * operands.depth + k)];
    if (route.counts[expert] == 0 || sum == 0.0) continue;
    const double scaled = sum * operands.b_scale[static_cast<size_t>(column)];
    const float below = static_cast<float>(scaled * operands.a_scale[static_cast<size_t>(row)]);
    const float halfway = reference::float_of_bits((reference::bits_of(below) & ~0xffffU) | 0x8000);
    const auto a_scale = static_cast<float>(halfway / scaled);
    const int64_t rows = spec.scales == GemmScales::kRowColumn ? 1 : route.counts[expert];
    std::fill_n(operands.a_scale.begin() + row, rows, a_scale);
  }
  return operands;
}

EndScaledOperands random_operands(const GroupedGemmSpec& spec, const Route& route, uint64_t seed) {
  EndScaledOperands operands = empty_operands(spec, route);
  const RandomStream random(seed, 0), scales(seed, 1);
  uint64_t next = 0;
  for (std::vector<float>* values : {&operands.a, &operands.b}) {
    const Fp8Format format = values == &operands.a ? operands.a_format : operands.b_format;
    for (float& value : *values) {
      const double normal = random.normal(next++);
      value =
          operands.is_bf16
              ? reference::float_from_bf16(reference::bf16_from_float(static_cast<float>(normal)))
              : reference::decode_fp8(
                    reference::encode_fp8(static_cast<float>(64.0 * normal), format), format);
    }
  }
  fill_scales(spec, route, operands,
              [&](uint64_t i) { return static_cast<float>(0.5 + 1.5 * scales.uniform(i)); });
  return operands;
}

GroupedGemmSpec EndScaledGemmTest::problem(const EndScaledKind& kind, int32_t experts,
                                           int32_t sections, int32_t section_n, int32_t k,
                                           int64_t largest_group) {
  const bool is_bf16 = kind.scales == GemmScales::kNone || kind.is_bf16;
  const GroupedGemmSpec problem{
      .operands = is_bf16 ? compiler::DType::kBF16 : compiler::DType::kF8E4M3,
      .is_a_e5m2 = kind.is_a_e5m2,
      .scales = kind.scales,
      .accumulation = kind.accumulation,
      .b_major = kind.b_major,
      .local_experts = experts,
      .sections = sections,
      .section_n = section_n,
      .k = k};
  EXPECT_TRUE(succeeded(compiler::check_grouped_gemm(problem)));
  GroupedGemmSpec spec = kind.is_swapped ? compiler::choose_swapped_tiles(problem, largest_group)
                                         : compiler::choose_tiles(problem);
  if (kind.is_widest && compiler::may_be_widest(spec)) spec = compiler::with_widest_tiles(spec);
  if (kind.has_clusters) spec.cluster_ctas = 2;
  if (kind.has_column_halves) spec = without_wgmma(spec);
  EXPECT_EQ(spec.has_column_halves, kind.has_column_halves);
  return spec;
}

std::vector<uint16_t> EndScaledGemmTest::multiply(const GroupedGemmSpec& spec, const Route& route,
                                                  const EndScaledOperands& given, int64_t ctas) {
  constexpr int64_t kBeyond = 130;
  const EndScaledOperands operands = with_poisoned_pad_rows(spec, route, given);
  const bool has_scales = spec.scales != GemmScales::kNone;
  const DeviceBuffer a = input("a", encoded(operands, operands.a, operands.a_format));
  const DeviceBuffer b =
      input("b", encoded(operands,
                         spec.b_major == compiler::Major::kMn ? mn_major_b(operands) : operands.b,
                         operands.b_format));
  std::vector<DeviceBuffer> scales;
  if (has_scales) {
    scales.push_back(input("a_scale_inv", stored_a_scales(spec.scales, route, operands)));
    scales.push_back(input("b_scale_inv", stored_b_scales(spec.scales, operands)));
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
  run(spec, ceil_div(ctas, spec.cluster_ctas) * spec.cluster_ctas, params, buffers);
  const auto values = d.download<uint16_t>();
  EXPECT_TRUE(untouched_from(values, route.rows() * n));
  return head(values, route.rows() * n);
}

void EndScaledGemmTest::expect_exact(const GroupedGemmSpec& spec, const Route& route,
                                     uint64_t seed) {
  expect_exact(spec, route, random_operands(spec, route, seed));
}

void EndScaledGemmTest::expect_exact(const GroupedGemmSpec& spec, const Route& route,
                                     const EndScaledOperands& operands) {
  expect_bits(spec, route, operands, chain_length(spec));
}

void EndScaledGemmTest::expect_bits(const GroupedGemmSpec& spec, const Route& route,
                                    const EndScaledOperands& operands, int64_t chain) {
  const auto wanted = reference::end_scaled_gemm(operands, route, chain);
  const auto got = multiply(spec, route, operands);
  EXPECT_TRUE(matches(compare_bf16({"d", operands.columns}, got, wanted)));
}

}  // namespace moejit::testing
