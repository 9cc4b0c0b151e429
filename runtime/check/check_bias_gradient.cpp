// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/compare.h"
#include "runtime/reference/number_formats.h"

#include <cmath>

namespace moejit::check {
namespace {

using runtime::elements;
using runtime::HostTensor;

using reference::block_count;
using reference::float_from_bf16;

// Rows of gradients as a kernel adds them up: bf16, or codes times their scales.
class GradientRows {
 public:
  explicit GradientRows(const KernelTensors& tensors) : data_(tensors.at("input")) {
    if (tensors.has("input_scale_inv")) scales_ = tensors.view<float>("input_scale_inv");
  }
  int64_t columns() const { return data_.shape[1]; }
  double value(int64_t row, int64_t column) const {
    const auto at = static_cast<size_t>(row * columns() + column);
    if (scales_.empty()) return float_from_bf16(elements<uint16_t>(data_)[at]);
    const int64_t block = row * block_count(columns()) + column / reference::kBlock;
    return double{reference::decode_e4m3(elements<uint8_t>(data_)[at])} *
           double{scales_[static_cast<size_t>(block)]};
  }

 private:
  const HostTensor& data_;
  std::span<const float> scales_;
};

struct Sum {
  double value = 0.0, magnitude = 0.0;
  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

// Returns which column of the rows is summed into this column of the result.
int64_t source_column(const compiler::ColumnSumsSpec& spec, int64_t column) {
  if (spec.is_interleaved) return column % spec.sections * spec.pitch + column / spec.sections;
  return column / spec.section_columns * spec.pitch + column % spec.section_columns;
}

void compare(const KernelTensors& tensors, const std::vector<double>& wanted,
             const std::vector<double>& bound, CheckList& list) {
  const std::string_view name = tensors.name("output");
  const HostTensor& output = tensors.at("output");
  const int64_t columns = output.shape.size() < 2 ? 1 : output.shape.back();
  list.add(check_within(
      name, testing::compare_f32_within({name, columns}, elements<float>(output), wanted, bound)));
}

}  // namespace

void check_kernel(const compiler::ColumnSumsSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  constexpr int64_t kWalkers = 32;  // each adds up every 32nd row; the 32 sums are then added
  if (!tensors.has("input") || !tensors.has("output")) return;
  const GradientRows gradient(tensors);
  const reference::Route route = tensors.route();
  const auto weight = [&](int64_t row) {
    return spec.times_prob ? double{tensors.view<float>("probs")[static_cast<size_t>(row)]} : 1.0;
  };
  std::vector<double> wanted, bound;
  for (size_t e = 0; e < route.counts.size(); ++e) {
    const int64_t count = route.counts[e];
    for (int64_t column = 0; column < int64_t{spec.sections} * spec.section_columns; ++column) {
      Sum sum;
      for (int64_t row = route.offs[e]; row < route.offs[e] + count; ++row)
        sum.add(gradient.value(row, source_column(spec, column)) * weight(row));
      wanted.push_back(sum.value);
      bound.push_back(reference::fp32_sum_error(sum.magnitude, count / kWalkers + kWalkers + 2) +
                      0x1p-120);
    }
  }
  compare(tensors, wanted, bound, list);
}

// The bound counts the additions of a lane. A lane adds 16 columns of every fourth block, then
// makes five more additions to combine the sums.
void check_kernel(const compiler::RowDotsSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input") || !tensors.has("output")) return;
  const GradientRows gradient(tensors);
  const reference::Route route = tensors.route();
  const std::span<const uint16_t> bias = tensors.view<uint16_t>("bias");
  std::vector<double> wanted(static_cast<size_t>(route.rows())), bound = wanted;
  for (size_t e = 0; e < route.counts.size(); ++e) {
    for (int64_t row = route.offs[e]; row < route.offs[e] + route.counts[e]; ++row) {
      Sum sum;
      for (int64_t column = 0; column < spec.columns; ++column)
        sum.add(gradient.value(row, column) *
                float_from_bf16(
                    bias[e * static_cast<size_t>(spec.columns) + static_cast<size_t>(column)]));
      wanted[static_cast<size_t>(row)] = sum.value;
      bound[static_cast<size_t>(row)] =
          reference::fp32_sum_error(sum.magnitude, 16 + block_count(spec.columns) / 4 + 1 + 5) +
          0x1p-120;
    }
  }
  compare(tensors, wanted, bound, list);
}

}  // namespace moejit::check
