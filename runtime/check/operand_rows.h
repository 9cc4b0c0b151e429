// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "runtime/check/kernel_tensors.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::check {

// Returns the bf16 rows of a kernel's "input" in permuted order: as they are, or each with the
// values of the token that "row_tokens" names. With kGathered, a token with probability 0 has
// zeros.
std::vector<uint16_t> permuted_rows(compiler::RowSource source, int64_t columns,
                                    const KernelTensors& tensors);

// Returns bf16 rows of gate and up, `columns` each, or of up alone, with all of gate first.
inline std::vector<uint16_t> gate_then_up(std::span<const uint16_t> rows, int64_t columns,
                                          bool is_interleaved) {
  if (is_interleaved) return reference::gate_first<uint16_t>(rows, columns, 1);
  return {rows.begin(), rows.end()};
}

// Bf16 rows of gate and up, or of up alone, in the order in which they are stored.
class GatedRows {
 public:
  GatedRows(std::span<const uint16_t> rows, int64_t columns, bool has_gate, bool is_interleaved)
      : rows_(rows), columns_(columns), has_gate_(has_gate), is_interleaved_(is_interleaved) {}

  // The values that a row has for a column of the activation. Without a gate, `gate` is 0.
  struct GateAndUp {
    double gate = 0.0, up = 0.0;
  };
  GateAndUp at(int64_t row, int64_t column) const {
    if (!has_gate_) return {.up = value(index(row, true, column))};
    return {value(index(row, false, column)), value(index(row, true, column))};
  }
  // Returns the index of the row's gate or up in this column.
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

// Compares an operand of wgrad, the codes of this role and their scales, with the transpose of
// `rows`. Columns that belong to no group are never written, so they are skipped. Returns how many
// values became 0.
uint64_t check_transposed(const KernelTensors& tensors, const reference::QuantizedRows& rows,
                          std::string_view role, CheckList& list,
                          const compiler::TransposeSpec& spec = {});

// Compares the codes of an operand of wgrad with the bytes of `rows`, which hold the same codes as
// rows instead of columns. Columns that belong to no group are skipped.
void check_kept_bytes(const KernelTensors& tensors, const runtime::HostTensor& rows,
                      std::string_view role, CheckList& list);

// Returns whether a block of 128 columns belongs to a group, not to the room behind the groups.
bool is_in_group(const reference::TransposeGroups& groups, int64_t block);

// An operand of wgrad that a kernel has cast by columns: the codes of a role, with a scale for 128
// tokens of each column.
class CastOperand {
 public:
  CastOperand(const KernelTensors& tensors, std::string_view role);

  int64_t columns() const { return codes_.shape[0]; }
  int64_t output_columns() const { return codes_.shape[1]; }
  const reference::TransposeGroups& groups() const { return groups_; }
  // Return a column's code in an output column, and a column's scale in a block of output columns.
  uint8_t code(int64_t column, int64_t output_column) const;
  float scale_inv(int64_t column, int64_t block) const;

  // Compares the codes and scales with what is wanted. Columns that belong to no group are never
  // written, so they are skipped. `verdict` is the check's verdict if nothing differs.
  void compare(reference::ColumnCast wanted, const std::string& verdict, CheckList& list) const;

 private:
  std::string name_, scales_name_;
  runtime::HostTensor codes_;  // [columns, output columns]
  std::span<const float> scales_;
  reference::TransposeGroups groups_;
};

}  // namespace moejit::check
