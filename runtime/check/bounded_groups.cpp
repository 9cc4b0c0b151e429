// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/bounded_values.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::check {
namespace {

using runtime::copy_elements;

using reference::kMxGroup;

uint8_t code_of(double value, uint8_t exponent) {
  return reference::encode_e4m3(rounded(value) * std::ldexp(1.0F, 127 - exponent));
}

uint16_t value_of(uint8_t code, uint8_t exponent) {
  return reference::bf16_from_float(reference::decode_e4m3(code) * reference::e8m0_value(exponent));
}

// Neighboring elements of a row that share a scale.
class Group {
 public:
  Group(const BoundedRows& rows, int64_t row, int64_t index)
      : rows_(rows),
        first_(row * rows.columns + index * kMxGroup),
        count_(std::min(kMxGroup, rows.columns - index * kMxGroup)) {
    AmaxBounds amax;
    for (int64_t i = 0; i < count_; ++i) amax.add(rows, at(i));
    least_ = reference::e8m0_from_amax(amax.least);
    most_ = reference::e8m0_from_amax(amax.most);
    exact_ = reference::e8m0_from_amax(amax.exact);
  }

  size_t at(int64_t i) const { return static_cast<size_t>(first_ + i); }
  int64_t count() const { return count_; }
  uint8_t exponent() const { return exact_; }
  bool takes(uint8_t exponent) const { return least_ <= exponent && exponent <= most_; }

  // Returns whether a value within the bounds may have this code.
  bool takes(int64_t i, uint8_t code, uint8_t exponent) const {
    return may_have_code(rows_, at(i), code,
                         [&](double value) { return code_of(value, exponent); });
  }
  uint8_t code(int64_t i, uint8_t exponent) const { return code_of(rows_.value[at(i)], exponent); }

  // Returns the exponent whose codes give all these values. If there is none, the exponent of the
  // exact values.
  uint8_t exponent_of(std::span<const uint16_t> got) const {
    for (int exponent = least_; exponent <= most_; ++exponent) {
      const auto tried = static_cast<uint8_t>(exponent);
      bool takes_all = true;
      for (int64_t i = 0; i < count_ && takes_all; ++i) takes_all = takes_value(i, got, tried);
      if (takes_all) return tried;
    }
    return exact_;
  }
  bool takes_value(int64_t i, std::span<const uint16_t> got, uint8_t exponent) const {
    const uint8_t code = code_of(reference::float_from_bf16(got[at(i)]), exponent);
    const bool is_nan = code == 0x7F;
    return takes(i, code, exponent) && (is_nan || value_of(code, exponent) == got[at(i)]);
  }

 private:
  const BoundedRows& rows_;
  int64_t first_, count_;
  uint8_t least_ = 0, most_ = 0, exact_ = 0;
};

// Calls visit(group, row, index of the group in its row) for each group.
template <typename Visit>
void for_each_group(const BoundedRows& rows, const KernelTensors& tensors, const Visit& visit) {
  const auto row_count =
      std::ssize(tensors.route().offs.empty() ? std::vector<uint8_t>{}
                                              : reference::real_rows(tensors.route()));
  for (int64_t row = 0; row < row_count; ++row)
    for (int64_t index = 0; index * kMxGroup < rows.columns; ++index)
      visit(Group(rows, row, index), row, index);
}

}  // namespace

void check_group_codes(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list) {
  const std::string scales_role = fmt::format("{}_scale_inv", role);
  const std::vector<uint8_t> codes = copy_elements<uint8_t>(tensors.at(role));
  const std::vector<uint8_t> scales = copy_elements<uint8_t>(tensors.at(scales_role));
  const int64_t pitch = tensors.at(scales_role).shape.back();
  std::vector<uint8_t> wanted = codes, wanted_scales(scales.size());
  for_each_group(rows, tensors, [&](const Group& group, int64_t row, int64_t index) {
    const auto place = static_cast<size_t>(row * pitch + index);
    const uint8_t exponent = group.takes(scales[place]) ? scales[place] : group.exponent();
    wanted_scales[place] = exponent;
    for (int64_t i = 0; i < group.count(); ++i)
      if (!group.takes(i, codes[group.at(i)], exponent))
        wanted[group.at(i)] = group.code(i, exponent);
  });
  const std::string_view name = tensors.name(role), scales_name = tensors.name(scales_role);
  list.add(
      check_of(name, testing::compare_e4m3({name, rows.columns}, codes, wanted), kWithinBounds));
  list.add(check_of(scales_name,
                    testing::compare_bytes({scales_name, pitch}, scales, wanted_scales),
                    kWithinBounds));
}

void check_group_values(const BoundedRows& rows, const KernelTensors& tensors,
                        std::string_view role, CheckList& list) {
  const std::span<const uint16_t> got = tensors.view<uint16_t>(role);
  std::vector<uint16_t> wanted(got.begin(), got.end());
  for_each_group(rows, tensors, [&](const Group& group, int64_t, int64_t) {
    const uint8_t exponent = group.exponent_of(got);
    for (int64_t i = 0; i < group.count(); ++i)
      if (!group.takes_value(i, got, exponent))
        wanted[group.at(i)] = value_of(group.code(i, exponent), exponent);
  });
  const std::string_view name = tensors.name(role);
  list.add(check_of(name, testing::compare_bf16({name, rows.columns}, got, wanted), kWithinBounds));
}

}  // namespace moejit::check
