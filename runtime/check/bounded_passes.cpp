// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/bounded_values.h"
#include "runtime/reference/number_formats.h"
#include "runtime/trial/file_tensors.h"

#include <algorithm>

namespace moejit::check {
namespace {

using runtime::elements;
using runtime::HostTensor;

using reference::kBlock;

// Returns the wanted magnitude: the one that the kernel got if it lies within the bounds, else the
// exact one.
float wanted_amax(const AmaxBounds& amax, float got) {
  return got >= amax.least && got <= amax.most ? got : amax.exact;
}

size_t place(const BoundedRows& rows, int64_t row, int64_t column) {
  return static_cast<size_t>(row * rows.columns + column);
}

// Calls visit(expert, first row, rows, first output column) for each 128 rows of an expert.
template <typename Visit>
void for_each_tile(const KernelTensors& tensors, const Visit& visit) {
  const reference::Route route = tensors.route();
  const std::span<const int32_t> output_offs = tensors.view<int32_t>("output_offs");
  for (size_t e = 0; e < route.counts.size(); ++e)
    for (int64_t done = 0; done < route.counts[e]; done += kBlock)
      visit(static_cast<int64_t>(e), route.offs[e] + done,
            std::min<int64_t>(kBlock, route.counts[e] - done), output_offs[e] + done);
}

}  // namespace

void check_segment_amax(const BoundedRows& rows, int64_t columns, const KernelTensors& tensors,
                        CheckList& list) {
  const std::span<const float> got = tensors.view<float>("output");
  const std::vector<uint8_t> is_real = reference::real_rows(tensors.route());
  const int64_t blocks = reference::block_count(columns);
  std::vector<float> wanted(got.begin(), got.end());
  for (int64_t row = 0; row < std::ssize(is_real); ++row) {
    if (is_real[static_cast<size_t>(row)] == 0) continue;
    for (int64_t block = 0; block < blocks; ++block) {
      AmaxBounds amax;
      for (int64_t i = block * kBlock; i < std::min((block + 1) * kBlock, columns); ++i)
        for (const int64_t half : {int64_t{0}, rows.columns / 2})
          amax.add(rows, place(rows, row, half + i));
      float& magnitude = wanted[static_cast<size_t>(row * blocks + block)];
      magnitude = wanted_amax(amax, magnitude);
    }
  }
  const std::string_view name = tensors.name("output");
  list.add(check_of(name, testing::compare_f32({name, blocks}, got, wanted), kWithinBounds));
}

void check_column_amax(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list) {
  const std::span<const uint16_t> got = tensors.view<uint16_t>(role);
  std::vector<uint16_t> wanted(got.begin(), got.end());
  for_each_tile(tensors, [&](int64_t, int64_t first, int64_t count, int64_t first_output) {
    for (int64_t column = 0; column < rows.columns; ++column) {
      AmaxBounds amax;
      for (int64_t i = 0; i < count; ++i) amax.add(rows, place(rows, first + i, column));
      uint16_t& magnitude = wanted[place(rows, first_output / kBlock, column)];
      magnitude =
          reference::bf16_from_float(wanted_amax(amax, reference::float_from_bf16(magnitude)));
    }
  });
  const std::string_view name = tensors.name(role);
  list.add(check_of(name, testing::compare_bf16({name, rows.columns}, got, wanted), kWithinBounds));
}

void check_scaled_columns(const BoundedRows& rows, const KernelTensors& tensors,
                          std::string_view role, std::string_view scales_role, CheckList& list) {
  const HostTensor codes = trial::join_column_blocks(tensors.at(role));
  const std::span<const uint8_t> got = elements<uint8_t>(codes);
  const std::span<const float> scales = tensors.view<float>(scales_role);
  const int64_t output_columns = codes.shape[1];
  std::vector<uint8_t> wanted(got.begin(), got.end());
  for_each_tile(tensors, [&](int64_t expert, int64_t first, int64_t count, int64_t first_output) {
    for (int64_t column = 0; column < rows.columns; ++column) {
      const float scale = 1.0F / scales[place(rows, expert, column)];
      const auto code_of = [&](double value) {
        return reference::encode_e4m3(rounded(value) * scale);
      };
      for (int64_t i = 0; i < kBlock; ++i) {
        const auto in_operand = static_cast<size_t>(column * output_columns + first_output + i);
        const size_t at = place(rows, first + i, column);
        if (i >= count)
          wanted[in_operand] = 0;
        else if (!may_have_code(rows, at, got[in_operand], code_of))
          wanted[in_operand] = code_of(rows.value[at]);
      }
    }
  });
  const std::string_view name = tensors.name(role);
  list.add(
      check_of(name, testing::compare_e4m3({name, output_columns}, got, wanted), kWithinBounds));
}

}  // namespace moejit::check
