// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/refused_options.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

struct RefusedOption {
  std::string_view key;
  std::string_view reason;
};

constexpr std::array kRefused = {
    RefusedOption{"native_gemm",
                  "a GEMM that reads codes of mxfp8 or nvfp4 with their scales does not run on "
                  "target cuda:sm_90a, whose tensor cores take no scale for each 32 or 16 "
                  "products: leave the field out, and layers multiply the exact values in bf16; "
                  "operations quantize, quantize_columns and swizzle_scales make what such GEMMs "
                  "of sm_100a read"},
    RefusedOption{"random_hadamard_transform",
                  "no target has a kernel that transforms operands of wgrad before they are cast: "
                  "leave the field out, and values are cast as they are"},
    RefusedOption{"stochastic_rounding",
                  "no target has a kernel that rounds by chance: leave the field out, and values "
                  "are rounded to nearest even, the same in every run"},
};

}  // namespace

Result<void> refuse_options(const JsonView& root) {
  for (const RefusedOption& option : kRefused)
    if (const auto view = root.find(option.key))
      return view->fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", view->got()),
                        std::string(option.reason));
  return {};
}

}  // namespace moejit::compiler
