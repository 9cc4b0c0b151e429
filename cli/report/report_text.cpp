// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report_text.h"

#include "compiler/support/table.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

// Returns the number with a sign and a digit behind the point; 0.0 has no sign.
std::string signed_text(double percent) {
  const double rounded = std::round(percent * 10.0) / 10.0;
  if (rounded == 0.0) return "0.0";
  return fmt::format("{}{:.1f}", rounded < 0.0 ? "\u2212" : "+", std::abs(rounded));
}

// Returns whether the byte is the first of a character in UTF-8.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

}  // namespace

std::optional<double> known(double number) {
  if (std::isfinite(number) && number > 0.0) return number;
  return std::nullopt;
}

std::string micros_text(double microseconds) { return with_micro_sign(time_text(microseconds)); }

std::string with_micro_sign(std::string text) {
  if (text.ends_with(" us")) text.replace(text.size() - 2, 1, "\u00B5");
  return text;
}

std::string known_time_text(std::optional<double> microseconds) {
  return microseconds ? micros_text(*microseconds) : "unknown";
}

std::string change_text(double ratio) { return signed_text(100.0 * (ratio - 1.0)) + " %"; }

std::string change_range_text(double low, double high) {
  if (!std::isfinite(low) || !std::isfinite(high)) return "unknown";
  return fmt::format("{} to {} %", signed_text(100.0 * (low - 1.0)),
                     signed_text(100.0 * (high - 1.0)));
}

std::string known_text(std::optional<double> number, std::string_view format) {
  return number ? fmt::format(fmt::runtime(format), *number) : "unknown";
}

std::string count_text(int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, &begins_character));
}

std::string shortened(std::string_view text, std::size_t most) {
  if (length_of(text) <= most) return std::string(text);
  std::size_t characters = 0, end = 0;
  for (; end < text.size(); ++end)
    if (begins_character(text[end]) && characters++ == most - 1) break;
  return std::string(text.substr(0, end)) + "\u2026";
}

}  // namespace moejit::cli
