// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// Rows of cells under a heading, columns as wide as their widest cell and two blanks apart.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Cells that are left out are empty.
  void add(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "12.3 us", "4.56 ms", "1.23 s": three or more digits at any size.
std::string time_text(double microseconds);

// "5.5 MiB"
std::string bytes_text(int64_t bytes);

}  // namespace moejit::cli
