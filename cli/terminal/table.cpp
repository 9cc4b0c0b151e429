// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/table.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

namespace moejit::cli {

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].heading.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c)
      line += columns_[c].align == Align::kLeft ? fmt::format("{:<{}}  ", cell_of(c), widths[c])
                                                : fmt::format("{:>{}}  ", cell_of(c), widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t c) { return columns_[c].heading; });
  for (const auto& row : rows_) add_line([&](size_t c) { return row[c]; });
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

}  // namespace moejit::cli
