// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/sampled_gemm.h"
#include "runtime/check/tensor_core_rule.h"
#include "runtime/reference/end_scaled_gemm.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <cmath>

namespace moejit::check {
namespace {

using compiler::GradientOutput;
using compiler::GradientScales;
using measure::GemmCase;
using reference::block_count;
using reference::QuantizedRows;
using reference::RandomStream;
using trial::GemmTrial;

constexpr double kSampledElements = 16384.0;  // for all groups together

class GradientSample {
 public:
  explicit GradientSample(GemmTrial& session) : session_(session), gemm_(session.gemm()) {}

  // Adds some rows and columns of a group's matrix as a small GEMM.
  Result<void> add_group(int64_t group, uint64_t seed) {
    const auto side =
        std::clamp<int64_t>(std::llround(std::sqrt(kSampledElements / gemm_.groups)), 2, 64);
    const auto number = 2 * static_cast<uint64_t>(group);
    const std::vector<int64_t> rows = choose(RandomStream(seed, number), side, gemm_.rows);
    const std::vector<int64_t> columns = choose(RandomStream(seed, number + 1), side, gemm_.n);
    if (has_end_scales()) return add_end_scaled(group, rows, columns);
    MOEJIT_TRY_ASSIGN(const QuantizedRows a, operand("a", "a_scale_inv", gemm_.rows, rows, group));
    MOEJIT_TRY_ASSIGN(const QuantizedRows b, operand("b", "b_scale_inv", gemm_.n, columns, group));
    add_wanted(reference::weight_gradient(
        a, b, {.counts = {count(group)}, .offs = {0, static_cast<int32_t>(a.cols)}, .row_map = {}},
        gemm_.gradient_scales == GradientScales::kTile ? reference::ScaleOrder::kProductOfScales
                                                       : reference::ScaleOrder::kRowThenColumn));
    return add_results(group, rows, columns);
  }

  testing::Comparison compare() const {
    if (dtype_of(gemm_.output) == compiler::DType::kBF16)
      return testing::compare_bf16({"d"}, bf16_, reference::bf16_from_floats(wanted_));
    return testing::compare_f32({"d"}, f32_, wanted_);
  }

 private:
  int32_t count(int64_t group) const {
    return session_.groups().counts[static_cast<size_t>(group)];
  }
  bool by_row() const { return gemm_.gradient_scales == GradientScales::kRowColumn; }
  bool has_end_scales() const {
    return by_row() || gemm_.gradient_scales == GradientScales::kTensor;
  }

  Result<void> add_results(int64_t group, const std::vector<int64_t>& rows,
                           const std::vector<int64_t>& columns) {
    return dtype_of(gemm_.output) == compiler::DType::kBF16 ? add_got(group, rows, columns, bf16_)
                                                            : add_got(group, rows, columns, f32_);
  }

  // Adds a small GEMM whose scales multiply complete sums.
  Result<void> add_end_scaled(int64_t group, const std::vector<int64_t>& rows,
                              const std::vector<int64_t>& columns) {
    reference::EndScaledOperands small{.rule = tensor_core_rule(session_.target()),
                                       .order = by_row() ? reference::ScaleOrder::kRowThenColumn
                                                         : reference::ScaleOrder::kProductOfScales,
                                       .rows = std::ssize(rows),
                                       .columns = std::ssize(columns),
                                       .depth = 128 * block_count(count(group))};
    MOEJIT_TRY(add_values("a", gemm_.rows, rows, group, small.a));
    MOEJIT_TRY(add_values("b", gemm_.n, columns, group, small.b));
    MOEJIT_TRY(add_scales("a_scale_inv", gemm_.rows, rows, group, small.a_scale));
    MOEJIT_TRY(add_scales("b_scale_inv", gemm_.n, columns, group, small.b_scale));
    const auto count_of_rows = static_cast<int32_t>(rows.size());
    const bool is_fast = gemm_.accumulation == compiler::GemmAccumulation::kFast;
    add_wanted(reference::end_scaled_gemm_sums(
        small, {.counts = {count_of_rows}, .offs = {0, count_of_rows}, .row_map = {}},
        is_fast ? std::max(small.depth, reference::kBlock) : reference::kBlock));
    return add_results(group, rows, columns);
  }
  Result<void> add_values(std::string_view from, int64_t all_rows, const std::vector<int64_t>& rows,
                          int64_t group, std::vector<float>& values) {
    const int64_t first = session_.groups().offs[static_cast<size_t>(group)] / 128;
    for (const int64_t row : rows)
      for (int64_t block = first; block < first + block_count(count(group)); ++block) {
        MOEJIT_TRY_ASSIGN(const auto codes,
                          session_.read<uint8_t>(from, (block * all_rows + row) * 128, 128));
        for (const uint8_t code : codes) values.push_back(reference::decode_e4m3(code));
      }
    return {};
  }
  Result<void> add_scales(std::string_view from, int64_t all_rows, const std::vector<int64_t>& rows,
                          int64_t group, std::vector<float>& scales) {
    for (const int64_t row : rows) {
      MOEJIT_TRY_ASSIGN(const auto scale,
                        session_.read<float>(from, by_row() ? group * all_rows + row : group, 1));
      scales.push_back(scale.front());
    }
    return {};
  }

  // Returns the chosen rows of A or B, which has `all_rows` rows, cut to the group's columns.
  Result<QuantizedRows> operand(std::string_view from, std::string_view scales, int64_t all_rows,
                                const std::vector<int64_t>& rows, int64_t group) {
    const int64_t blocks_of_row = session_.groups().rows() / 128;
    const int64_t first = session_.groups().offs[static_cast<size_t>(group)] / 128;
    const int64_t blocks = block_count(count(group));
    QuantizedRows chosen{.rows = std::ssize(rows),
                         .cols = 128 * blocks,
                         .q = {},
                         .scale_inv = {},
                         .rule = tensor_core_rule(session_.target())};
    const bool has_tiles = gemm_.gradient_scales == GradientScales::kTile;
    for (const int64_t row : rows) {
      for (int64_t block = first; block < first + blocks; ++block) {
        MOEJIT_TRY_ASSIGN(const auto q,
                          session_.read<uint8_t>(from, (block * all_rows + row) * 128, 128));
        chosen.q.insert(chosen.q.end(), q.begin(), q.end());
        const int64_t scale =
            has_tiles ? row / 128 * blocks_of_row + block : block * all_rows + row;
        MOEJIT_TRY_ASSIGN(const auto scale_inv, session_.read<float>(scales, scale, 1));
        chosen.scale_inv.push_back(scale_inv.front());
      }
    }
    return chosen;
  }

  // Appends the product, added to D's earlier values if the kernel adds.
  void add_wanted(const std::vector<float>& product) {
    const float old = GemmTrial::old_value(dtype_of(gemm_.output));
    for (const float value : product) wanted_.push_back(adds(gemm_.output) ? value + old : value);
  }

  template <typename T>
  Result<void> add_got(int64_t group, const std::vector<int64_t>& rows,
                       const std::vector<int64_t>& columns, std::vector<T>& got) {
    for (const int64_t row : rows) {
      MOEJIT_TRY_ASSIGN(const auto result,
                        session_.read<T>("d", (group * gemm_.rows + row) * gemm_.n, gemm_.n));
      for (const int64_t column : columns) got.push_back(result[static_cast<size_t>(column)]);
    }
    return {};
  }

  GemmTrial& session_;
  const GemmCase& gemm_;
  std::vector<uint16_t> bf16_;
  std::vector<float> f32_, wanted_;
};

}  // namespace

Result<testing::Comparison> check_gradient(trial::GemmTrial& session, uint64_t seed) {
  GradientSample sample(session);
  for (int64_t group = 0; group < session.gemm().groups; ++group)
    MOEJIT_TRY(sample.add_group(group, seed));
  return sample.compare();
}

}  // namespace moejit::check
