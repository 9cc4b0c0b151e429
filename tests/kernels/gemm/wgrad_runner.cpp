// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/wgrad_runner.h"

#include "compiler/planner/grouped_gemm.h"
#include "compiler/support/integer.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/contraction_grouped_gemm_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GradientOutput;
using compiler::GradientScales;
using reference::block_count;
using reference::QuantizedRows;
using reference::RandomStream;
using reference::Route;

reference::ScaleOrder order_of(const compiler::ContractionGroupedGemmSpec& spec) {
  return spec.scales == GradientScales::kRow ? reference::ScaleOrder::kRowThenColumn
                                             : reference::ScaleOrder::kProductOfScales;
}

int64_t elements(const compiler::ContractionGroupedGemmSpec& spec) {
  return int64_t{spec.local_experts} * spec.sections * result_rows(spec) * spec.n;
}

// Where D's rows lie in its buffer: with gaps behind each row and each matrix of a group and
// section.
struct GuardedMatrices {
  static constexpr int64_t kGuardColumns = 16;
  static constexpr int64_t kGuardRows = 3;
  const compiler::ContractionGroupedGemmSpec& spec;

  int64_t pitch() const { return spec.n + kGuardColumns; }
  int64_t stride() const { return (result_rows(spec) + kGuardRows) * pitch(); }
  int64_t size() const { return int64_t{spec.local_experts} * spec.sections * stride(); }
  int64_t rows() const { return elements(spec) / spec.n; }  // of all matrices
  // Returns the first element of one of these rows.
  int64_t first(int64_t row) const {
    return row / result_rows(spec) * stride() + row % result_rows(spec) * pitch();
  }

  compiler::TensorBox box(compiler::TensorBox packed) const {
    const int64_t element_bytes = packed.strides_bytes[0] / spec.n;
    packed.strides_bytes = {pitch() * element_bytes, stride() * element_bytes};
    return packed;
  }
};

template <typename T>
double number(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return double{value};
  } else {
    return double{reference::float_from_bf16(value)};
  }
}

template <typename T>
T element(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return reference::bf16_from_float(value);
  }
}

// At least one step: a tensor map has no empty dimension.
int32_t columns_of(const Route& route) { return std::max(static_cast<int32_t>(route.rows()), 128); }

// For scales per 128x128 tile, rows of a tile repeat the first one's.
void share_scales_in_tiles(QuantizedRows& matrix) {
  const int64_t blocks = block_count(matrix.cols);
  for (int64_t row = 0; row < matrix.rows; ++row)
    std::copy_n(&matrix.scale_inv[row / 128 * 128 * blocks], blocks,
                &matrix.scale_inv[row * blocks]);
}

void fill_pad_columns(const Route& route, QuantizedRows& matrix) {
  const int64_t blocks = block_count(matrix.cols);
  for (size_t e = 0; e < route.counts.size(); ++e) {
    const int64_t end = route.offs[e] + route.counts[e];
    const int64_t step_end = route.offs[e] + 128 * block_count(route.counts[e]);
    for (int64_t row = 0; row < matrix.rows; ++row) {
      uint8_t* q = &matrix.q[row * matrix.cols];
      std::fill(q + end, q + step_end, uint8_t{0});
      std::fill(q + step_end, q + route.offs[e + 1], kE4m3Nan);
      float* scales = &matrix.scale_inv[row * blocks];
      std::fill(scales + step_end / 128, scales + route.offs[e + 1] / 128,
                std::numeric_limits<float>::quiet_NaN());
    }
  }
}

QuantizedRows prepared(const compiler::ContractionGroupedGemmSpec& spec, const Route& route,
                       QuantizedRows matrix) {
  if (spec.scales == GradientScales::kTile) share_scales_in_tiles(matrix);
  fill_pad_columns(route, matrix);
  return matrix;
}

// As the kernel takes them: [ceil(rows / 128), columns / 128], or [columns / 128, rows].
std::vector<float> stored_scales(const compiler::ContractionGroupedGemmSpec& spec,
                                 const QuantizedRows& matrix) {
  const int64_t blocks = block_count(matrix.cols);
  std::vector<float> scales;
  if (spec.scales == GradientScales::kRow) {
    for (int64_t i = 0; i < blocks * matrix.rows; ++i)
      scales.push_back(matrix.scale_inv[i % matrix.rows * blocks + i / matrix.rows]);
    return scales;
  }
  for (int64_t row = 0; row < matrix.rows; row += 128) {
    const float* from = &matrix.scale_inv[row * blocks];
    scales.insert(scales.end(), from, from + blocks);
  }
  return scales;
}

}  // namespace

WgradTest::Spec WgradTest::problem(GradientScales scales, GradientOutput output, int32_t experts,
                                   int32_t rows, int32_t n, int64_t mean_columns) {
  return compiler::choose_tiles(
      Spec{.scales = scales, .output = output, .local_experts = experts, .rows = rows, .n = n},
      mean_columns);
}

std::vector<WgradTest::Spec> WgradTest::ways(Spec spec) {
  std::vector<Spec> all = {spec};
  if (const Spec halves = without_wgmma(spec); halves.has_column_halves) all.push_back(halves);
  spec.cluster_ctas = 2;
  if (may_be_clustered(spec)) all.push_back(spec);
  return all;
}

QuantizedRows WgradTest::randoms(const Spec& spec, int64_t rows, const Route& route,
                                 uint64_t seed) {
  return prepared(spec, route, random_rows({.k = columns_of(route)}, rows, seed));
}

std::vector<float> WgradTest::old_values(const Spec& spec) {
  const RandomStream random(77, 0);
  std::vector<float> old(static_cast<size_t>(elements(spec)));
  for (size_t i = 0; i < old.size(); ++i) old[i] = static_cast<float>(random.below(i, 200));
  return old;
}

std::vector<double> WgradTest::multiply(const Spec& spec, const Route& route,
                                        const QuantizedRows& a, const QuantizedRows& b,
                                        const std::vector<float>& old, int64_t ctas) {
  const auto operand = [&](const QuantizedRows& matrix) -> Operand {
    return {reference::to_column_blocks(matrix.q, matrix.cols), stored_scales(spec, matrix)};
  };
  return launch(spec, route, a.cols, operand(a), operand(b), old, ctas);
}

std::vector<double> WgradTest::multiply(const Spec& spec, const Route& route,
                                        const std::vector<uint16_t>& a,
                                        const std::vector<uint16_t>& b,
                                        const std::vector<float>& old, int64_t ctas) {
  const auto operand = [](const std::vector<uint16_t>& values) -> Operand {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    return {{bytes, bytes + 2 * values.size()}, {}};
  };
  return launch(spec, route, std::ssize(a) / spec.rows, operand(a), operand(b), old, ctas);
}

std::vector<double> WgradTest::multiply(const Spec& spec, const Route& route, const EndScaled& a,
                                        const EndScaled& b, const std::vector<float>& old,
                                        int64_t ctas) {
  const int64_t columns = columns_of(route);
  const auto operand = [&](const EndScaled& from) -> Operand {
    return {reference::to_column_blocks(from.q, columns), from.scale_inv};
  };
  return launch(spec, route, columns, operand(a), operand(b), old, ctas);
}

std::vector<double> WgradTest::launch(const Spec& spec, const Route& route, int64_t columns,
                                      const Operand& a, const Operand& b,
                                      const std::vector<float>& old, int64_t ctas) {
  return dtype_of(spec.output) == compiler::DType::kBF16
             ? launch_as<uint16_t>(spec, route, columns, a, b, old, ctas)
             : launch_as<float>(spec, route, columns, a, b, old, ctas);
}

template <typename T>
std::vector<double> WgradTest::launch_as(const Spec& spec, const Route& route, int64_t columns,
                                         const Operand& a, const Operand& b,
                                         const std::vector<float>& old, int64_t ctas) {
  const GuardedMatrices place{spec};
  const DeviceBuffer a_buffer = input("a", a.bytes);
  const DeviceBuffer b_buffer = input("b", b.bytes);
  std::vector<DeviceBuffer> scales;
  if (spec.scales != GradientScales::kNone) {
    scales.push_back(input("a_scale_inv", a.scale_inv));
    scales.push_back(input("b_scale_inv", b.scale_inv));
  }
  const DeviceBuffer counts = input("counts", route.counts);
  const DeviceBuffer offs = input("offs", route.offs);
  const DeviceBuffer d = output<T>("d", place.size());
  for (int64_t i = 0; adds(spec.output) && i < place.rows(); ++i) {
    std::vector<T> row;
    for (int64_t k = i * spec.n; k < (i + 1) * spec.n; ++k)
      row.push_back(element<T>(old[static_cast<size_t>(k)]));
    d.upload(place.first(i), row);
  }
  const auto maps = compiler::contraction_grouped_gemm_tensor_maps(spec, columns, {});
  const device::ContractionGroupedGemmParams params{
      .a_map = tensor_map(maps[0].box, a_buffer),
      .b_map = tensor_map(maps[1].box, b_buffer),
      .d_map = tensor_map(place.box(maps[2].box), d),
      .a_scale_inv = scales.empty() ? nullptr : scales[0].as<const float>(),
      .b_scale_inv = scales.empty() ? nullptr : scales[1].as<const float>(),
      .counts = counts.as<const int32_t>(),
      .offs = offs.as<const int32_t>(),
      .columns = columns};
  std::vector<const DeviceBuffer*> buffers = {&a_buffer, &b_buffer, &counts, &offs, &d};
  for (const DeviceBuffer& scale : scales) buffers.push_back(&scale);
  run(spec, ceil_div(ctas, spec.cluster_ctas) * spec.cluster_ctas, params, buffers);

  std::vector<T> all = d.download<T>();
  std::vector<double> result;
  for (int64_t i = 0; i < place.rows(); ++i) {
    const auto row = all.begin() + place.first(i);
    for (auto value = row; value < row + spec.n; ++value) result.push_back(number(*value));
    std::memset(&*row, 0xcd, sizeof(T) * static_cast<size_t>(spec.n));
  }
  EXPECT_TRUE(untouched_from(all, 0)) << "beside the matrices of groups";
  return result;
}

void WgradTest::expect_exact(const Spec& spec, const Route& route, uint64_t seed) {
  const QuantizedRows a = randoms(spec, spec.rows, route, seed);
  const QuantizedRows b = randoms(spec, spec.n, route, seed + 1);
  const std::vector<float> old = old_values(spec);
  expect_stored(spec, reference::weight_gradient(a, b, route, order_of(spec)), old,
                multiply(spec, route, a, b, old));
}

void WgradTest::expect_stored(const Spec& spec, std::vector<float> sums,
                              const std::vector<float>& old, const std::vector<double>& got) {
  for (size_t i = 0; i < sums.size(); ++i) {
    if (adds(spec.output)) sums[i] += old[i];
    if (dtype_of(spec.output) == compiler::DType::kBF16)
      sums[i] = reference::float_from_bf16(reference::bf16_from_float(sums[i]));
  }
  EXPECT_TRUE(
      matches(compare_f32({"d", spec.n}, std::vector<float>(got.begin(), got.end()), sums)));
}

}  // namespace moejit::testing
