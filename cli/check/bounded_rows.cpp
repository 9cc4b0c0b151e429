// SPDX-License-Identifier: Apache-2.0
#include "cli/check/bounded_rows.h"

#include "runtime/reference/block_scale.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using reference::kBlock;

constexpr const char* kVerdict = "within the bounds of the values";

float rounded(double value) {
  return reference::float_from_bf16(reference::bf16_from_float(static_cast<float>(value)));
}

// Orders codes as their values; -0 is 0.
int order_of(uint8_t code) { return (code & 0x80) != 0 ? -(code & 0x7F) : code; }

// The elements of a block, by their places in the rows.
class Block {
 public:
  Block(const BoundedRows& rows, float epsilon) : rows_(rows), epsilon_(epsilon) {}

  void add(int64_t row, int64_t column) {
    const auto at = static_cast<size_t>(row * rows_.columns + column);
    const double magnitude = std::fabs(rows_.value[at]), bound = bound_at(at);
    if (std::isnan(magnitude)) return;
    least_ = std::max(least_, rounded(std::max(magnitude - bound, 0.0)));
    most_ = std::max(most_, rounded(magnitude + bound));
    exact_ = std::max(exact_, rounded(magnitude));
  }
  // Returns the scale that is wanted: what a kernel got, if an amax within the bounds has it.
  float scale_inv(float got) const {
    const float low = scale_of(least_), high = scale_of(most_);
    int exponent = 0;
    const bool is_power = std::frexp(got, &exponent) == 0.5F;
    const bool is_between = is_power && (least_ == 0.0F || got >= low) && got <= high;
    return got == low || got == high || is_between ? got : scale_of(exact_);
  }
  // Returns the code that is wanted: what a kernel got, if a value within the bounds has it.
  uint8_t code(int64_t row, int64_t column, float scale_inv, uint8_t got) const {
    const auto at = static_cast<size_t>(row * rows_.columns + column);
    const double value = rows_.value[at], bound = bound_at(at);
    const auto code_of = [&](double of) {
      return reference::encode_e4m3(rounded(of) * (1.0F / scale_inv));
    };
    if (std::isnan(value) || got == 0x7F) return code_of(value);
    const bool is_within = order_of(code_of(value - bound)) <= order_of(got) &&
                           order_of(got) <= order_of(code_of(value + bound));
    return is_within ? got : code_of(value);
  }

 private:
  // Doubles become floats before they are rounded to bf16.
  double bound_at(size_t at) const {
    return rows_.bound[at] + (rows_.bound[at] > 0.0 ? 0x1p-23 * std::fabs(rows_.value[at]) : 0.0);
  }
  float scale_of(float amax) const {
    return reference::scale_from_amax(amax, {.eps = epsilon_}).scale_inv;
  }

  const BoundedRows& rows_;
  float epsilon_;
  float least_ = 0.0F, most_ = 0.0F, exact_ = 0.0F;
};

}  // namespace

void check_rounded_rows(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                        std::string_view role, CheckList& list) {
  const reference::QuantizedRows got = tensors.rows(role);
  const std::vector<uint8_t> is_real = reference::real_rows(tensors.route());
  // A row has a scale for each block of 128 columns, or one.
  const int64_t blocks = got.rows > 0 ? std::ssize(got.scale_inv) / got.rows : 1;
  const int64_t width = blocks == 1 ? rows.columns : kBlock;
  reference::QuantizedRows wanted = got;
  for (int64_t row = 0; row < std::ssize(is_real); ++row)
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t first = i * width, end = std::min(first + width, rows.columns);
      Block block(rows, epsilon);
      for (int64_t column = first; column < end; ++column) block.add(row, column);
      float& scale_inv = wanted.scale_inv[static_cast<size_t>(row * blocks + i)];
      const bool counts = is_real[static_cast<size_t>(row)] != 0;
      scale_inv = counts ? block.scale_inv(scale_inv) : 0.0F;
      for (int64_t column = first; column < end; ++column) {
        uint8_t& code = wanted.q[static_cast<size_t>(row * rows.columns + column)];
        code = counts ? block.code(row, column, scale_inv, code) : uint8_t{0};
      }
    }
  const std::string scales_role = fmt::format("{}_scale_inv", role);
  const std::string_view name = tensors.name(role), scales_name = tensors.name(scales_role);
  list.add(check_of(name, testing::compare_e4m3({name, rows.columns}, got.q, wanted.q), kVerdict));
  list.add(check_of(scales_name,
                    testing::compare_f32({scales_name, blocks}, got.scale_inv, wanted.scale_inv),
                    kVerdict));
}

void check_rounded_columns(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                           std::string_view role, CheckList& list) {
  const CastOperand got(tensors, role);
  const reference::TransposeGroups& groups = got.groups();
  reference::ColumnCast wanted{
      .bytes = std::vector<uint8_t>(static_cast<size_t>(got.columns() * got.output_columns())),
      .scale_inv =
          std::vector<float>(static_cast<size_t>(got.output_columns() / kBlock * got.columns()))};
  for (size_t e = 0; e < groups.counts.size(); ++e)
    for (int64_t done = 0; done < groups.counts[e]; done += kBlock)
      for (int64_t column = 0; column < got.columns(); ++column) {
        const int64_t first = groups.offs[e] + done, first_output = groups.output_offs[e] + done;
        const int64_t count = std::min<int64_t>(kBlock, groups.counts[e] - done);
        Block block(rows, epsilon);
        for (int64_t i = 0; i < count; ++i) block.add(first + i, column);
        const int64_t at = first_output / kBlock;
        const float scale_inv = block.scale_inv(got.scale_inv(column, at));
        wanted.scale_inv[static_cast<size_t>(at * got.columns() + column)] = scale_inv;
        for (int64_t i = 0; i < count; ++i)
          wanted.bytes[static_cast<size_t>(column * got.output_columns() + first_output + i)] =
              block.code(first + i, column, scale_inv, got.code(column, first_output + i));
      }
  got.compare(std::move(wanted), kVerdict, list);
}

}  // namespace moejit::cli
