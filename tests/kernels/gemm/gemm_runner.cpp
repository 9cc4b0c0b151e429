// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/gemm_runner.h"

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

using compiler::GroupedGemmSpec;
using reference::block_count;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::RandomStream;
using reference::Route;

uint8_t small_integer(const RandomStream& random, uint64_t i) {
  return reference::encode_e4m3(static_cast<float>(random.below(i, 5) - 2));
}
float power_of_two(const RandomStream& random, uint64_t i) {
  return std::ldexp(1.0f, static_cast<int>(random.below(i, 5) - 2));
}

// `blocks` scales lie side by side, of which `sharing` in turn are the same.
void fill_integers(uint64_t seed, int64_t blocks, int64_t sharing, std::vector<uint8_t>& values,
                   std::vector<float>& scales) {
  const RandomStream random(seed, 0);
  const RandomStream exponents(seed, 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = small_integer(random, i);
  for (size_t i = 0; i < scales.size(); ++i) {
    const size_t block = i % static_cast<size_t>(blocks);
    scales[i] = power_of_two(exponents, i - block % static_cast<size_t>(sharing));
  }
}

}  // namespace

Route splits(std::vector<int32_t> counts, int32_t alignment) {
  Route route{.counts = std::move(counts), .offs = {0}, .row_map = {}};
  for (const int32_t count : route.counts) {
    route.offs.push_back(route.offs.back() + (count + alignment - 1) / alignment * alignment);
  }
  return route;
}

Route only_group(const Route& route, std::size_t group) {
  Route only{.counts = std::vector<int32_t>(route.counts.size(), 0), .offs = {}, .row_map = {}};
  only.counts[group] = route.counts[group];
  for (std::size_t i = 0; i < route.offs.size(); ++i) {
    only.offs.push_back(route.offs[i <= group ? group : group + 1]);
  }
  return only;
}

QuantizedRows integer_rows(const GroupedGemmSpec& spec, int64_t rows, uint64_t seed) {
  const int64_t blocks = block_count(spec.k);
  QuantizedRows a{rows, spec.k, std::vector<uint8_t>(rows * spec.k),
                  std::vector<float>(rows * blocks)};
  fill_integers(seed, blocks, spec.blocks_per_promotion, a.q, a.scale_inv);
  return a;
}

QuantizedWeights integer_weights(const GroupedGemmSpec& spec, uint64_t seed) {
  QuantizedWeights b{.experts = spec.local_experts,
                     .rows = spec.sections * spec.section_n,
                     .cols = spec.k,
                     .sections = spec.sections};
  b.q.resize(b.experts * b.rows * b.cols);
  b.scale_inv.resize(b.experts * b.scale_rows() * block_count(b.cols));
  fill_integers(seed, block_count(b.cols), spec.blocks_per_promotion, b.q, b.scale_inv);
  return b;
}

QuantizedRows random_rows(const GroupedGemmSpec& spec, int64_t rows, uint64_t seed) {
  return reference::quantize_1x128(reference::random_activations(rows, spec.k, seed), rows, spec.k,
                                   reference::kActivationEps, spec.blocks_per_promotion);
}

QuantizedWeights random_weights(const GroupedGemmSpec& spec, uint64_t seed) {
  const int64_t n = spec.sections * spec.section_n;
  return reference::quantize_128x128(reference::random_weights(spec.local_experts, n, spec.k, seed),
                                     spec.local_experts, n, spec.k, spec.sections,
                                     spec.blocks_per_promotion);
}

void poison_pad_rows(const Route& route, QuantizedRows& a) {
  const auto real = reference::real_rows(route);
  for (int64_t row = 0; row < a.rows; ++row) {
    if (real[row] != 0) continue;
    std::fill_n(a.q.begin() + row * a.cols, a.cols, kE4m3Nan);
    std::fill_n(a.scale_inv.begin() + row * block_count(a.cols), block_count(a.cols),
                std::numeric_limits<float>::quiet_NaN());
  }
}

GroupedGemmSpec GemmTest::problem(int32_t experts, int32_t sections, int32_t section_n, int32_t k,
                                  int32_t sharing) {
  return compiler::choose_tiles({.local_experts = experts,
                                 .sections = sections,
                                 .section_n = section_n,
                                 .k = k,
                                 .blocks_per_promotion = sharing});
}

GroupedGemmSpec GemmTest::swapped_problem(int32_t experts, int32_t sections, int32_t section_n,
                                          int32_t k, int32_t sharing, int64_t largest_group) {
  return compiler::choose_swapped_tiles({.local_experts = experts,
                                         .sections = sections,
                                         .section_n = section_n,
                                         .k = k,
                                         .blocks_per_promotion = sharing},
                                        largest_group);
}

device::TensorMap GemmTest::map_of(const std::vector<compiler::TensorMapPlan>& maps,
                                   std::string_view role, const DeviceBuffer& buffer) {
  const auto map = std::ranges::find(maps, role, &compiler::TensorMapPlan::role);
  return map == maps.end() ? device::TensorMap{} : tensor_map(map->box, buffer);
}

std::vector<uint16_t> GemmTest::multiply_all(const GroupedGemmSpec& spec, const Route& route,
                                             const QuantizedRows& rows,
                                             const QuantizedWeights& weights, int64_t ctas) {
  constexpr int64_t kBeyond = 130;
  const DeviceBuffer a = input("a", rows.q);
  const DeviceBuffer a_scale_inv = input("a_scale_inv", rows.scale_inv);
  const DeviceBuffer b = input("b", weights.q);
  const DeviceBuffer b_scale_inv = input("b_scale_inv", weights.scale_inv);
  const DeviceBuffer counts = input("counts", route.counts);
  const DeviceBuffer offs = input("offs", route.offs);
  const DeviceBuffer d = output<uint16_t>("d", (rows.rows + kBeyond) * weights.rows);
  // A ends with the rows that there are; D is longer, so that stores beyond them would be seen.
  const auto a_maps = compiler::grouped_gemm_tensor_maps(spec, rows.rows, {});
  const auto d_maps = compiler::grouped_gemm_tensor_maps(spec, rows.rows + kBeyond, {});
  const device::GroupedGemmParams params{.a_map = map_of(a_maps, "a_map", a),
                                         .b_map = map_of(a_maps, "b_map", b),
                                         .d_map = map_of(d_maps, "d_map", d),
                                         .a_scale_inv = a_scale_inv.as<const float>(),
                                         .b_scale_inv = b_scale_inv.as<const float>(),
                                         .d = d.as<device::Bf16>(),
                                         .counts = counts.as<const int32_t>(),
                                         .offs = offs.as<const int32_t>()};
  run(spec, ceil_div(ctas, spec.cluster_ctas) * spec.cluster_ctas, params,
      {&a, &a_scale_inv, &b, &b_scale_inv, &counts, &offs, &d});
  return d.download<uint16_t>();
}

std::vector<uint16_t> GemmTest::multiply(const GroupedGemmSpec& spec, const Route& route,
                                         const QuantizedRows& rows, const QuantizedWeights& weights,
                                         int64_t ctas) {
  const auto values = multiply_all(spec, route, rows, weights, ctas);
  EXPECT_TRUE(untouched_from(values, route.rows() * weights.rows));
  return head(values, route.rows() * weights.rows);
}

void GemmTest::expect_exact(const GroupedGemmSpec& spec, const Route& route, uint64_t seed) {
  expect_exact(spec, route, random_rows(spec, route.rows(), seed), random_weights(spec, seed + 1));
}

void GemmTest::expect_exact(const GroupedGemmSpec& spec, const Route& route, QuantizedRows rows,
                            const QuantizedWeights& weights) {
  const auto wanted = reference::grouped_gemm(rows, weights, route, spec.blocks_per_promotion);
  poison_pad_rows(route, rows);
  const auto got = multiply(spec, route, rows, weights);
  EXPECT_TRUE(matches(compare_bf16({"d", weights.rows}, got, wanted)));
}

}  // namespace moejit::testing
