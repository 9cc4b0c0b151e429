// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/table.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <string_view>

namespace moejit {
namespace {

constexpr size_t kGap = 2;  // blanks between columns
constexpr size_t kNarrowest = 12;

std::string shortened(const std::string& cell, size_t width) {
  constexpr std::string_view kDots = "...";
  if (cell.size() <= width || width <= kDots.size()) return cell;
  const size_t kept = width - kDots.size();
  // Names of kernels differ at both ends.
  const size_t end = cell.find(' ') == std::string::npos ? kept / 2 : 0;
  return cell.substr(0, kept - end) + std::string(kDots) + cell.substr(cell.size() - end);
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::widths_within(int32_t width) const {
  std::vector<size_t> widths;
  size_t total = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t widest = columns_[c].heading.size();
    for (const auto& row : rows_) widest = std::max(widest, row[c].size());
    widths.push_back(widest);
    total += widest + (c > 0 ? kGap : 0);
  }
  const auto shrinkable = [&](size_t c) {
    return columns_[c].align == Align::kLeft ? widths[c] : size_t{0};
  };
  while (width > 0 && total > static_cast<size_t>(width)) {
    size_t widest = 0;
    for (size_t c = 1; c < columns_.size(); ++c)
      if (shrinkable(c) > shrinkable(widest)) widest = c;
    if (shrinkable(widest) <= kNarrowest) break;
    --widths[widest];
    --total;
  }
  return widths;
}

std::vector<std::string> Table::lines(int32_t width) const {
  const std::vector<size_t> widths = widths_within(width);
  std::vector<std::string> lines;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = shortened(cell_of(c), widths[c]);
      line += columns_[c].align == Align::kLeft ? fmt::format("{:<{}}  ", cell, widths[c])
                                                : fmt::format("{:>{}}  ", cell, widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  };
  add_line([&](size_t c) { return columns_[c].heading; });
  for (const auto& row : rows_) add_line([&](size_t c) { return row[c]; });
  return lines;
}

std::string Table::text(int32_t width) const {
  std::string text;
  for (const std::string& line : lines(width)) text += line + "\n";
  return text;
}

std::string time_text(double microseconds) {
  if (microseconds < 999.95) return fmt::format("{:.1f} us", microseconds);
  if (microseconds < 999.995e3) return fmt::format("{:.2f} ms", microseconds * 1e-3);
  return fmt::format("{:.2f} s", microseconds * 1e-6);
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace moejit
