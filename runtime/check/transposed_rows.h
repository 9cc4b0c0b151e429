// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "runtime/check/kernel_tensors.h"

#include <cstdint>
#include <string_view>

namespace moejit::check {

// Compares an operand of wgrad, the codes of this role and their scales, with the transpose of
// rows. Columns that belong to no group are never written: they are passed over. Returns how many
// values became 0.
uint64_t check_transposed(const KernelTensors& tensors, const reference::QuantizedRows& rows,
                          std::string_view role, CheckList& list,
                          const compiler::TransposeSpec& spec = {});

// Compares an operand of wgrad, the codes of this role, with the bytes of `rows`, codes too, which
// become columns. Columns that belong to no group are passed over.
void check_kept_bytes(const KernelTensors& tensors, const runtime::HostTensor& rows,
                      std::string_view role, CheckList& list);

}  // namespace moejit::check
