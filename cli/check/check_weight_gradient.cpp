// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_weight_gradient.h"

#include "cli/check/choose.h"
#include "cli/tensors/colwise_slices.h"
#include "runtime/reference/scaled_dot.h"
#include "runtime/reference/weight_gradient.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using reference::block_count;
using reference::kBlock;
using reference::QuantizedRows;
using reference::RandomStream;

constexpr double kMaxMultiplyAdds = 0x1p31;  // of all experts together

// An operand [rows, C] of all tokens.
struct Operand {
  HostTensor q;
  const HostTensor& scale_inv;  // [ceil(rows / 128), C / 128]

  int64_t rows() const { return q.shape[0]; }

  // The chosen rows, and of these an expert's columns.
  QuantizedRows part(const std::vector<int64_t>& rows, int64_t first, int64_t count) const {
    const int64_t columns = q.shape[1], blocks = block_count(count);
    QuantizedRows chosen{
        .rows = std::ssize(rows), .cols = blocks * kBlock, .q = {}, .scale_inv = {}};
    const auto codes = elements<uint8_t>(q).begin();
    const auto scales = elements<float>(scale_inv).begin();
    for (const int64_t row : rows) {
      const auto code = codes + (row * columns + first);
      const auto scale = scales + (row / kBlock * (columns / kBlock) + first / kBlock);
      chosen.q.insert(chosen.q.end(), code, code + chosen.cols);
      chosen.scale_inv.insert(chosen.scale_inv.end(), scale, scale + blocks);
    }
    return chosen;
  }
};

template <typename T>
std::vector<T> gather(const HostTensor& tensor, std::span<const size_t> at) {
  const std::span<const T> all = elements<T>(tensor);
  std::vector<T> chosen;
  for (const size_t i : at) chosen.push_back(all[i]);
  return chosen;
}

}  // namespace

TensorCheck check_gradient_elements(const LayerResults& results, std::string_view tensor,
                                    std::span<const size_t> at, const std::vector<double>& wanted,
                                    std::vector<double> bounds) {
  const HostTensor& gradient = results.at(tensor);
  const bool is_bf16 = gradient.dtype == compiler::DType::kBF16;
  if (is_bf16)
    for (size_t i = 0; i < bounds.size(); ++i)
      bounds[i] = reference::with_bf16_rounding(bounds[i], wanted[i]);
  TensorCheck check = check_within(
      tensor,
      is_bf16
          ? testing::compare_bf16_within({tensor}, gather<uint16_t>(gradient, at), wanted, bounds)
          : testing::compare_f32_within({tensor}, gather<float>(gradient, at), wanted, bounds));
  check.verdict += sampled_text(std::ssize(at), element_count(gradient.shape), "elements");
  return check;
}

TensorCheck check_weight_gradient(const LayerResults& results, std::string_view tensor,
                                  std::string_view a, std::string_view b,
                                  std::span<const int32_t> offs, const RowSections& sections) {
  const auto operand = [&](std::string_view name) -> Operand {
    return {join_column_blocks(results.at(fmt::format("{}_colwise_q", name))),
            results.at(fmt::format("{}_colwise_scale_inv", name))};
  };
  const Operand rows = operand(a), columns = operand(b);
  const reference::Route route = results.route();
  const double affordable =
      std::sqrt(kMaxMultiplyAdds / std::max<double>(1.0, static_cast<double>(route.routed_rows())));
  const auto chosen = [&](const Operand& of, size_t expert, uint64_t purpose) {
    const auto number = 2 * static_cast<uint64_t>(expert) + purpose;
    return choose_affordable(RandomStream(0, number), affordable, of.rows());
  };
  const auto gradient_rows = static_cast<size_t>(sections.gradient_rows(rows.rows()));
  std::vector<size_t> at;
  std::vector<double> wanted, bound;
  for (size_t e = 0; e < route.counts.size(); ++e) {
    std::vector<int64_t> of_a = chosen(rows, e, 0);
    const std::vector<int64_t> of_b = chosen(columns, e, 1);
    std::erase_if(of_a, [&](int64_t row) { return !sections.has(row); });
    const int32_t count = route.counts[e];
    const auto padded = static_cast<int32_t>(block_count(count) * kBlock);
    const reference::WeightGradientExact exact = reference::weight_gradient_exact(
        rows.part(of_a, offs[e], count), columns.part(of_b, offs[e], count),
        {.counts = {count}, .offs = {0, padded}, .row_map = {}});
    wanted.insert(wanted.end(), exact.value.begin(), exact.value.end());
    bound.insert(bound.end(), exact.bound.begin(), exact.bound.end());
    for (const int64_t row : of_a)
      for (const int64_t column : of_b)
        at.push_back((e * gradient_rows + static_cast<size_t>(sections.gradient_row(row))) *
                         static_cast<size_t>(columns.rows()) +
                     static_cast<size_t>(column));
  }
  return check_gradient_elements(results, tensor, at, wanted, std::move(bound));
}

}  // namespace moejit::cli
