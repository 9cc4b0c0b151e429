// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/gradient_rows.h"

#include "compiler/kernels/record_fields.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/bias_gradient_params.h"

#include <algorithm>
#include <array>

namespace moejit::compiler {

std::string_view element_name(DType input) { return input == DType::kBF16 ? "bf16" : "e4m3"; }

std::string rows_type(DType input) {
  return input == DType::kBF16 ? "Bf16GradientRows<kPitch>" : "E4m3GradientRows<kPitch>";
}

int64_t gradient_row_bytes(DType input, int64_t columns) {
  return input == DType::kBF16 ? 2 * columns : columns + 4 * ceil_div(columns, 128);
}

namespace {

using device::BiasGradientParams;
using enum Access;

constexpr std::array kGradientRowsPointers = {
    MOEJIT_POINTER(BiasGradientParams, input, kRead),
    MOEJIT_POINTER(BiasGradientParams, input_scale_inv, kRead),
    MOEJIT_POINTER(BiasGradientParams, probs, kRead),
    MOEJIT_POINTER(BiasGradientParams, bias, kRead),
    MOEJIT_POINTER(BiasGradientParams, counts, kRead),
    MOEJIT_POINTER(BiasGradientParams, offs, kRead),
    MOEJIT_POINTER(BiasGradientParams, output, kWrite),
    MOEJIT_CALL_POINTERS(BiasGradientParams),
};

constexpr std::array kGradientRowsNumbers = {MOEJIT_NUMBER(BiasGradientParams, rows),
                                             MOEJIT_NUMBER(BiasGradientParams, call.tokens)};

// A result that is added to is also read.
constexpr auto kAddingPointers = [] {
  auto pointers = kGradientRowsPointers;
  std::ranges::find(pointers, "output", &RecordTensor::role)->access = kReadWrite;
  return pointers;
}();

constexpr ParamRecord kGradientRowsRecord{
    "bias_gradient", sizeof(BiasGradientParams), kGradientRowsPointers, {}, kGradientRowsNumbers};
static_assert(is_complete(kGradientRowsRecord));
constexpr ParamRecord kAddingGradientRowsRecord{
    kGradientRowsRecord.name, kGradientRowsRecord.bytes, kAddingPointers, {}, kGradientRowsNumbers};

}  // namespace

const ParamRecord& bias_gradient_record() { return kGradientRowsRecord; }

const ParamRecord& adding_bias_gradient_record() { return kAddingGradientRowsRecord; }

}  // namespace moejit::compiler
