// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moejit {

// Rows of cells under a heading; columns are as wide as their widest cell and two blanks apart.
// Given a width in characters, the widest left-aligned columns are made narrower until a line fits
// or none of them is wider than 12. Cells of one word lose their middle, others their end, and
// "..." marks the place. Right-aligned cells are numbers and stay whole. A width of 0 is no limit.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Adds a row. Cells that are left out are empty.
  void add(std::vector<std::string> cells);
  std::string text(int32_t width = 0) const;
  // Returns the table as lines without line breaks, heading first, for callers that add text
  // between the rows.
  std::vector<std::string> lines(int32_t width = 0) const;

 private:
  std::vector<size_t> widths_within(int32_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns "12.3 us", "4.56 ms" or "1.23 s": three or more digits at any size.
std::string time_text(double microseconds);

// Returns for example "5.5 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace moejit
