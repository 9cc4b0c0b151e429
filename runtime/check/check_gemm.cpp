// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/sampled_gemm.h"
#include "runtime/check/tensor_core_rule.h"
#include "runtime/reference/end_scaled_gemm.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"

#include <algorithm>
#include <variant>

namespace moejit::check {
namespace {

using compiler::GemmScales;
using measure::GemmCase;
using measure::GemmGroups;
using reference::block_count;
using reference::QuantizedWeights;
using reference::RandomStream;
using trial::GemmTrial;

constexpr int64_t kSampledRows = 256;  // for all groups together
constexpr int64_t kSampledColumns = 64;

template <typename T>
Result<void> append(GemmTrial& session, std::string_view from, int64_t first, int64_t count,
                    std::vector<T>& to) {
  MOEJIT_TRY_ASSIGN(const std::vector<T> values, session.read<T>(from, first, count));
  to.insert(to.end(), values.begin(), values.end());
  return {};
}

// A small GEMM whose A is the chosen rows of A and whose B is the chosen columns of the result.
class ChosenGemm {
 public:
  ChosenGemm(GemmTrial& session, uint64_t seed)
      : session_(session), gemm_(session.gemm()), seed_(seed) {}

  Result<void> add_group(int64_t group) {
    const GemmGroups& groups = session_.groups();
    const int64_t count = groups.counts[static_cast<size_t>(group)];
    const int64_t start = groups.offs[static_cast<size_t>(group)];
    const int64_t end = groups.offs[static_cast<size_t>(group) + 1];
    const std::vector<int64_t> columns =
        choose(RandomStream(seed_, 2 * static_cast<uint64_t>(group)), kSampledColumns, gemm_.n);
    for (const int64_t column : columns) MOEJIT_TRY(add_column(group, column));
    const int64_t wanted = std::min(std::max<int64_t>(2, kSampledRows / gemm_.groups), count);
    const RandomStream random(seed_, 2 * static_cast<uint64_t>(group) + 1);
    for (const int64_t row : choose(random, wanted, count))
      MOEJIT_TRY(add_row(group, start + row, columns));
    if (start + count < end) MOEJIT_TRY(add_row(group, start + count, columns));
    route_.counts.push_back(static_cast<int32_t>(wanted));
    route_.offs.push_back(static_cast<int32_t>(rows()));
    return {};
  }

  testing::Comparison compare() const {
    return testing::compare_bf16(
        {"d", kSampledColumns}, got_,
        gemm_.scales == GemmScales::kRowBlock ? block_scaled() : end_scaled());
  }

 private:
  int64_t element_bytes() const { return compiler::size_bytes(operands_of(gemm_)); }
  int64_t rows() const { return std::ssize(a_) / (gemm_.k * element_bytes()); }

  Result<void> add_row(int64_t group, int64_t row, const std::vector<int64_t>& columns) {
    const int64_t bytes = gemm_.k * element_bytes();
    MOEJIT_TRY(append(session_, "a", row * bytes, bytes, a_));
    MOEJIT_TRY(add_scales("a_scale_inv", row, group, row, a_scales_));
    MOEJIT_TRY_ASSIGN(const auto result, session_.read<uint16_t>("d", row * gemm_.n, gemm_.n));
    for (const int64_t column : columns) got_.push_back(result[static_cast<size_t>(column)]);
    return {};
  }

  Result<void> add_column(int64_t group, int64_t column) {
    const int64_t bytes = gemm_.k * element_bytes();
    const int64_t at = group * gemm_.n + column;
    const QuantizedWeights whole{
        .rows = gemm_.n, .sections = gemm_.sections, .q = {}, .scale_inv = {}};
    const int64_t block_row = group * whole.scale_rows() + whole.scale_row_of(column);
    MOEJIT_TRY(append(session_, "b", at * bytes, bytes, b_));
    return add_scales("b_scale_inv", block_row, group, at, b_scales_);
  }

  // Appends the scales of a row or column to `to`. These are the scales of `block_row`, the only
  // scale of its tensor, or its own scale.
  Result<void> add_scales(std::string_view from, int64_t block_row, int64_t tensor, int64_t own,
                          std::vector<float>& to) {
    const int64_t blocks = block_count(gemm_.k);
    switch (gemm_.scales) {
      case GemmScales::kRowBlock: return append(session_, from, block_row * blocks, blocks, to);
      case GemmScales::kTensor: return append(session_, from, tensor, 1, to);
      case GemmScales::kRowColumn: return append(session_, from, own, 1, to);
      case GemmScales::kSection:  // of packed weights, which only layers have
      case GemmScales::kNone: to.push_back(1.0f);
    }
    return {};
  }

  // Computes the sample. Each column is a section of one row, so that it has its own scales.
  std::vector<uint16_t> block_scaled() const {
    const reference::QuantizedRows a{.rows = rows(),
                                     .cols = gemm_.k,
                                     .q = a_,
                                     .scale_inv = a_scales_,
                                     .rule = tensor_core_rule(session_.target())};
    const QuantizedWeights b{.experts = gemm_.groups,
                             .rows = kSampledColumns,
                             .cols = gemm_.k,
                             .sections = kSampledColumns,
                             .q = b_,
                             .scale_inv = b_scales_};
    return reference::grouped_gemm(a, b, route_, gemm_.scale_sharing_k);
  }

  std::vector<uint16_t> end_scaled() const {
    const auto& spec = std::get<compiler::GroupedGemmSpec>(session_.kernel().spec);
    const int64_t chain =
        is_one_chain(spec) ? gemm_.k : spec.blocks_per_promotion * reference::kBlock;
    return reference::end_scaled_gemm(
        {.is_bf16 = gemm_.scales == GemmScales::kNone,
         .rule = tensor_core_rule(session_.target()),
         .order = gemm_.scales == GemmScales::kRowColumn ? reference::ScaleOrder::kRowThenColumn
                                                         : reference::ScaleOrder::kProductOfScales,
         .rows = rows(),
         .columns = kSampledColumns,
         .depth = gemm_.k,
         .a = decoded(a_),
         .b = decoded(b_),
         .a_scale = a_scales_,
         .b_scale = b_scales_},
        route_, chain);
  }

  std::vector<float> decoded(const std::vector<uint8_t>& bytes) const {
    std::vector<float> values;
    if (element_bytes() == 1) {
      for (const uint8_t code : bytes) values.push_back(reference::decode_e4m3(code));
    } else {
      for (size_t i = 0; i < bytes.size(); i += 2)
        values.push_back(
            reference::float_from_bf16(static_cast<uint16_t>(bytes[i] | bytes[i + 1] << 8)));
    }
    return values;
  }

  GemmTrial& session_;
  const GemmCase& gemm_;
  uint64_t seed_;
  std::vector<uint8_t> a_, b_;
  std::vector<float> a_scales_, b_scales_;
  reference::Route route_{.counts = {}, .offs = {0}, .row_map = {}};
  std::vector<uint16_t> got_;
};

}  // namespace

Result<testing::Comparison> check_gemm(trial::GemmTrial& session, uint64_t seed) {
  if (!is_row_grouped(session.gemm())) return check_gradient(session, seed);
  ChosenGemm sample(session, seed);
  for (int64_t group = 0; group < session.gemm().groups; ++group)
    MOEJIT_TRY(sample.add_group(group));
  return sample.compare();
}

}  // namespace moejit::check
