// SPDX-License-Identifier: Apache-2.0

#include "runtime/check/bounded_values.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/scales.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::check {

float rounded(double value) {
  return reference::float_from_bf16(reference::bf16_from_float(static_cast<float>(value)));
}

double bound_at(const BoundedRows& rows, size_t at) {
  const double bound = rows.bound[at];
  return bound + (bound > 0.0 ? 0x1p-23 * std::fabs(rows.value[at]) : 0.0);
}

void AmaxBounds::add(const BoundedRows& rows, size_t at) {
  const double magnitude = std::fabs(rows.value[at]), bound = bound_at(rows, at);
  if (std::isnan(magnitude)) return;
  least = std::max(least, rounded(std::max(magnitude - bound, 0.0)));
  most = std::max(most, rounded(magnitude + bound));
  exact = std::max(exact, rounded(magnitude));
}

namespace {

using reference::kBlock;

// The elements of a block, by their places in the rows.
class RowBlock {
 public:
  RowBlock(const BoundedRows& rows, float epsilon) : rows_(rows), epsilon_(epsilon) {}

  void add(int64_t row, int64_t column) { amax_.add(rows_, place(row, column)); }
  // Returns the wanted scale: the one that the kernel got if an amax within the bounds has it, else
  // the scale of the exact amax.
  float scale_inv(float got) const {
    const float low = scale_of(amax_.least), high = scale_of(amax_.most);
    int exponent = 0;
    const bool is_power = std::frexp(got, &exponent) == 0.5F;
    const bool is_between = is_power && (amax_.least == 0.0F || got >= low) && got <= high;
    return got == low || got == high || is_between ? got : scale_of(amax_.exact);
  }
  // Returns the wanted code: the one that the kernel got if a value within the bounds has it, else
  // the code of the exact value.
  uint8_t code(int64_t row, int64_t column, float scale_inv, uint8_t got) const {
    const size_t at = place(row, column);
    const auto code_of = [&](double value) {
      return reference::encode_e4m3(rounded(value) * (1.0F / scale_inv));
    };
    return may_have_code(rows_, at, got, code_of) ? got : code_of(rows_.value[at]);
  }

 private:
  size_t place(int64_t row, int64_t column) const {
    return static_cast<size_t>(row * rows_.columns + column);
  }
  float scale_of(float amax) const {
    return reference::scale_from_amax(amax, {.eps = epsilon_}).scale_inv;
  }

  const BoundedRows& rows_;
  float epsilon_;
  AmaxBounds amax_;
};

}  // namespace

void check_rounded_rows(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                        std::string_view role, CheckList& list) {
  const reference::QuantizedRows got = tensors.rows(role);
  const std::vector<uint8_t> is_real = reference::real_rows(tensors.route());
  // A row has a scale for each block of 128 columns, or a single one.
  const int64_t blocks = got.rows > 0 ? std::ssize(got.scale_inv) / got.rows : 1;
  const int64_t width = blocks == 1 ? rows.columns : kBlock;
  reference::QuantizedRows wanted = got;
  for (int64_t row = 0; row < std::ssize(is_real); ++row)
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t first = i * width, end = std::min(first + width, rows.columns);
      RowBlock block(rows, epsilon);
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
  list.add(
      check_of(name, testing::compare_e4m3({name, rows.columns}, got.q, wanted.q), kWithinBounds));
  list.add(check_of(scales_name,
                    testing::compare_f32({scales_name, blocks}, got.scale_inv, wanted.scale_inv),
                    kWithinBounds));
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
        RowBlock block(rows, epsilon);
        for (int64_t i = 0; i < count; ++i) block.add(first + i, column);
        const int64_t at = first_output / kBlock;
        const float scale_inv = block.scale_inv(got.scale_inv(column, at));
        wanted.scale_inv[static_cast<size_t>(at * got.columns() + column)] = scale_inv;
        for (int64_t i = 0; i < count; ++i)
          wanted.bytes[static_cast<size_t>(column * got.output_columns() + first_output + i)] =
              block.code(first + i, column, scale_inv, got.code(column, first_output + i));
      }
  got.compare(std::move(wanted), kWithinBounds, list);
}

}  // namespace moejit::check
