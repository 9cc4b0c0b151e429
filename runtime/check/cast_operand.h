// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/kernel_tensors.h"
#include "runtime/reference/column_cast.h"

#include <string>
#include <string_view>

namespace moejit::check {

// Returns whether a block of 128 columns belongs to a group, rather than to the room behind them.
bool is_in_group(const reference::TransposeGroups& groups, int64_t block);

// An operand of wgrad that a kernel has cast by columns: the codes of a role, with a scale for 128
// tokens of each column.
class CastOperand {
 public:
  CastOperand(const KernelTensors& tensors, std::string_view role);

  int64_t columns() const { return codes_.shape[0]; }
  int64_t output_columns() const { return codes_.shape[1]; }
  const reference::TransposeGroups& groups() const { return groups_; }
  // Returns the code of a column and output column, and the scale of a column in a block of these.
  uint8_t code(int64_t column, int64_t output_column) const;
  float scale_inv(int64_t column, int64_t block) const;

  // Compares the codes and scales with what is wanted. Columns that belong to no group are never
  // written: they are passed over. `verdict` is what holds if nothing differs.
  void compare(reference::ColumnCast wanted, const std::string& verdict, CheckList& list) const;

 private:
  std::string name_, scales_name_;
  runtime::HostTensor codes_;  // [columns, output columns]
  std::span<const float> scales_;
  reference::TransposeGroups groups_;
};

}  // namespace moejit::check
