// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gate_up_layout.h"
#include "runtime/reference/number_formats.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::check {

// Returns bf16 rows of gate and up, `columns` each, or of up alone, with all of gate first.
inline std::vector<uint16_t> gate_then_up(std::span<const uint16_t> rows, int64_t columns,
                                          bool is_interleaved) {
  if (is_interleaved) return reference::gate_first<uint16_t>(rows, columns, 1);
  return {rows.begin(), rows.end()};
}

// Such rows as they lie.
class GatedRows {
 public:
  GatedRows(std::span<const uint16_t> rows, int64_t columns, bool has_gate, bool is_interleaved)
      : rows_(rows), columns_(columns), has_gate_(has_gate), is_interleaved_(is_interleaved) {}

  // What a row has for a column of the activation; a gate of 0 where there is none.
  struct GateAndUp {
    double gate = 0.0, up = 0.0;
  };
  GateAndUp at(int64_t row, int64_t column) const {
    if (!has_gate_) return {.up = value(index(row, true, column))};
    return {value(index(row, false, column)), value(index(row, true, column))};
  }
  // Returns where the row's gate or up of that column is.
  size_t index(int64_t row, bool is_up, int64_t column) const {
    const int64_t first = row * width();
    if (is_interleaved_) return static_cast<size_t>(first + 2 * column + (is_up ? 1 : 0));
    return static_cast<size_t>(first + (is_up && has_gate_ ? columns_ : 0) + column);
  }
  int64_t width() const { return (has_gate_ ? 2 : 1) * columns_; }

 private:
  double value(size_t at) const { return reference::float_from_bf16(rows_[at]); }

  std::span<const uint16_t> rows_;
  int64_t columns_;
  bool has_gate_, is_interleaved_;
};

}  // namespace moejit::check
