// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/cast_operand.h"
#include "runtime/check/gathered_rows.h"
#include "runtime/check/kernel_checks.h"

namespace moejit::check {

void check_kernel(const compiler::ColumnCastSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input")) return;
  const CastOperand got(tensors, "output");
  const std::vector<uint16_t> rows = permuted_rows(spec.source, spec.columns, tensors);
  got.compare(reference::quantize_columns(rows, spec.columns, got.groups(), got.output_columns(),
                                          spec.epsilon, 0),
              "exact", list);
}

}  // namespace moejit::check
