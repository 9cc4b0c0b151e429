// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/param_record.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// These functions are shared by the kernels of biases. The kernels read rows of gradients, in bf16,
// or in e4m3 with compact scales (templates/moejit_device/bias/gradient_rows.cuh).

std::string_view element_name(DType input);

// Returns the device type of rows with `pitch` columns a section.
std::string rows_type(DType input);

// Returns the bytes of a row with its scales.
int64_t gradient_row_bytes(DType input, int64_t columns);

// Return the parameter record of these kernels, and of kernels that add to their output.
const ParamRecord& bias_gradient_record();
const ParamRecord& adding_bias_gradient_record();

}  // namespace moejit::compiler
