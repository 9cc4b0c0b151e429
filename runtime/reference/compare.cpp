// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/compare.h"

#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>

namespace moejit::testing {
namespace {

using reference::bits_of;
using reference::decode_e4m3;
using reference::float_from_bf16;
using reference::kBf16Max;

std::string describe_e4m3(std::uint8_t code) {
  return fmt::format("0x{:02X} ({})", code, decode_e4m3(code));
}
std::string describe_bf16(std::uint16_t code) {
  return fmt::format("0x{:04X} ({})", code, float_from_bf16(code));
}
std::string describe_f32(float value) {
  return fmt::format("0x{:08X} ({})", bits_of(value), value);
}

bool is_same_f32(float got, float wanted) {
  return bits_of(got) == bits_of(wanted) || (std::isnan(got) && std::isnan(wanted));
}

// Returns a code's place in the order of E4M3's values, -448 to 448; both zeros have one place.
int place_of_e4m3(std::uint8_t code) {
  const int magnitude = code & 0x7F;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

bool is_e4m3_neighbour(std::uint8_t got, std::uint8_t wanted) {
  const bool got_nan = (got & 0x7F) == 0x7F;
  const bool wanted_nan = (wanted & 0x7F) == 0x7F;
  if (got_nan || wanted_nan) return got_nan && wanted_nan;
  return std::abs(place_of_e4m3(got) - place_of_e4m3(wanted)) <= 1;
}

// Walks the elements; is_same(i) decides, describe_pair(i) words the first difference.
template <typename IsSame, typename DescribePair>
Comparison compare(const TensorView& view, std::size_t got_size, std::size_t wanted_size,
                   const IsSame& is_same, const DescribePair& describe_pair) {
  Comparison result;
  if (got_size != wanted_size) {
    result.message =
        fmt::format("{}: got {} elements, wanted {}", view.name, got_size, wanted_size);
    return result;
  }
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(got_size); ++i) {
    if (!view.row_mask.empty() && view.row_mask[i / view.cols] == 0) continue;
    ++result.compared;
    if (is_same(i)) continue;
    ++result.differing;
    if (first < 0) first = i;
  }
  if (first >= 0) {
    result.message = fmt::format("{}: {} of {} elements differ, the first at row {}, column {}: {}",
                                 view.name, result.differing, result.compared, first / view.cols,
                                 first % view.cols, describe_pair(first));
  }
  return result;
}

template <typename Integer>
Comparison compare_integers(const TensorView& view, std::span<const Integer> got,
                            std::span<const Integer> wanted) {
  return compare(
      view, got.size(), wanted.size(), [&](std::int64_t i) { return got[i] == wanted[i]; },
      [&](std::int64_t i) { return fmt::format("got {}, wanted {}", got[i], wanted[i]); });
}

}  // namespace

Comparison compare_e4m3(TensorView view, std::span<const std::uint8_t> got,
                        std::span<const std::uint8_t> wanted) {
  return compare(
      view, got.size(), wanted.size(), [&](std::int64_t i) { return got[i] == wanted[i]; },
      [&](std::int64_t i) {
        return fmt::format("got {}, wanted {}", describe_e4m3(got[i]), describe_e4m3(wanted[i]));
      });
}

Comparison compare_bytes(TensorView view, std::span<const std::uint8_t> got,
                         std::span<const std::uint8_t> wanted) {
  return compare(
      view, got.size(), wanted.size(), [&](std::int64_t i) { return got[i] == wanted[i]; },
      [&](std::int64_t i) {
        return fmt::format("got {:#04x}, wanted {:#04x}", got[i], wanted[i]);
      });
}

Comparison compare_bf16(TensorView view, std::span<const std::uint16_t> got,
                        std::span<const std::uint16_t> wanted) {
  return compare(
      view, got.size(), wanted.size(),
      [&](std::int64_t i) {
        return is_same_f32(float_from_bf16(got[i]), float_from_bf16(wanted[i]));
      },
      [&](std::int64_t i) {
        return fmt::format("got {}, wanted {}", describe_bf16(got[i]), describe_bf16(wanted[i]));
      });
}

Comparison compare_f32(TensorView view, std::span<const float> got, std::span<const float> wanted) {
  return compare(
      view, got.size(), wanted.size(),
      [&](std::int64_t i) { return is_same_f32(got[i], wanted[i]); },
      [&](std::int64_t i) {
        return fmt::format("got {}, wanted {}", describe_f32(got[i]), describe_f32(wanted[i]));
      });
}

Comparison compare_i32(TensorView view, std::span<const std::int32_t> got,
                       std::span<const std::int32_t> wanted) {
  return compare_integers(view, got, wanted);
}

Comparison compare_i64(TensorView view, std::span<const std::int64_t> got,
                       std::span<const std::int64_t> wanted) {
  return compare_integers(view, got, wanted);
}

Comparison compare_e4m3_within_one_code(TensorView view, std::span<const std::uint8_t> got,
                                        std::span<const std::uint8_t> wanted) {
  return compare(
      view, got.size(), wanted.size(),
      [&](std::int64_t i) { return is_e4m3_neighbour(got[i], wanted[i]); },
      [&](std::int64_t i) {
        return fmt::format("got {}, wanted {} or a neighbor", describe_e4m3(got[i]),
                           describe_e4m3(wanted[i]));
      });
}

namespace {

// Compares elements with `wanted` within `bound`. `largest` is the type's largest finite number;
// value_of(i) is the i-th computed element.
template <typename Value, typename Describe>
Comparison compare_within(TensorView view, std::size_t size, double largest, const Value& value_of,
                          std::span<const double> wanted, std::span<const double> bound,
                          const Describe& describe) {
  if (bound.size() != wanted.size()) {
    return {.message = fmt::format("{}: got {} bounds for {} elements", view.name, bound.size(),
                                   wanted.size())};
  }
  double worst_ratio = 0.0;
  const auto is_within = [&](std::int64_t i) {
    const double value = value_of(i);
    if (std::isnan(value) || std::isnan(wanted[i])) {
      return std::isnan(value) && std::isnan(wanted[i]);
    }
    if (std::isinf(value)) {
      return std::signbit(value) == std::signbit(wanted[i]) &&
             std::fabs(wanted[i]) + bound[i] > largest;
    }
    const double error = std::fabs(value - std::clamp(wanted[i], -largest, largest));
    if (error > 0.0) worst_ratio = std::max(worst_ratio, error / bound[i]);
    return error <= bound[i];
  };
  Comparison result = compare(view, size, wanted.size(), is_within, [&](std::int64_t i) {
    return fmt::format("got {}, wanted {} within {}", describe(i), wanted[i], bound[i]);
  });
  result.worst_ratio = worst_ratio;
  return result;
}

}  // namespace

Comparison compare_bf16_within(TensorView view, std::span<const std::uint16_t> got,
                               std::span<const double> wanted, std::span<const double> bound) {
  return compare_within(
      view, got.size(), double{kBf16Max},
      [&](std::int64_t i) { return double{float_from_bf16(got[i])}; }, wanted, bound,
      [&](std::int64_t i) { return describe_bf16(got[i]); });
}

Comparison compare_f32_within(TensorView view, std::span<const float> got,
                              std::span<const double> wanted, std::span<const double> bound) {
  return compare_within(
      view, got.size(), double{std::numeric_limits<float>::max()},
      [&](std::int64_t i) { return double{got[i]}; }, wanted, bound,
      [&](std::int64_t i) { return describe_f32(got[i]); });
}

double cosine_similarity(std::span<const double> a, std::span<const double> b) {
  double dot = 0.0, square_a = 0.0, square_b = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    dot += a[i] * b[i];
    square_a += a[i] * a[i];
    square_b += b[i] * b[i];
  }
  if (square_a == 0.0 && square_b == 0.0) return 1.0;
  return dot / (std::sqrt(square_a) * std::sqrt(square_b));
}

}  // namespace moejit::testing

namespace moejit::reference {

// Bounds additions in fp32, in any order, with rounding or truncation. Each of `length` partial
// sums is below the sum of |products| and loses less than 2^-23 of itself.
double fp32_sum_error(double magnitude, std::int64_t length) {
  return 0x1p-23 * magnitude * static_cast<double>(length);
}

double with_bf16_rounding(double bound, double value) {
  return bound + 0x1p-8 * (std::fabs(value) + bound) + 0x1p-134;
}

}  // namespace moejit::reference
