// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/input_file.h"

#include "compiler/call_dims.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <vector>

namespace moejit::trial {

using compiler::CallDim;
using compiler::TensorPlan;
using runtime::ToldDims;

namespace {

// Returns for example "BF16 [3, 256]", or "BF16 [T <= 64, 256]" as long as no tensor tells T.
std::string wanted_type(const TensorPlan& plan, const ToldDims& told) {
  std::vector<std::string> shape;
  for (const compiler::Dim& dim : plan.shape) {
    const auto kind = compiler::call_dim(dim);
    const int64_t size = !kind                       ? dim.value
                         : *kind == CallDim::kTokens ? told.tokens
                         : *kind == CallDim::kRows   ? told.rows
                                                     : told.columns;
    const int64_t unit = kind == CallDim::kColumnBlocks ? 128 : 1;
    shape.push_back(size >= 0 ? fmt::format("{}", size / unit)
                              : fmt::format("{} <= {}", dim.symbol, dim.value));
  }
  return fmt::format("{} [{}]", compiler::to_string(plan.dtype), fmt::join(shape, ", "));
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path, std::string prefix) {
  MOEJIT_TRY_ASSIGN(auto file, checkpoint::SafetensorsFile::open(path));
  return InputFile(std::move(file), std::move(prefix));
}

Result<void> InputFile::read(const TensorPlan& plan, ToldDims& told,
                             runtime::TensorMap& tensors) const {
  const std::string wanted = wanted_type(plan, told);
  auto found = at(plan.name);
  if (!found) {
    found.error().message += fmt::format(", wanted {}", wanted);
    return tl::make_unexpected(std::move(found).error());
  }
  const checkpoint::SafetensorsEntry& entry = **found;
  const bool fits = entry.dtype && check_type(plan, {plan.name, *entry.dtype, entry.shape}, told);
  if (!fits)
    return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                fmt::format("{}: tensor \"{}\" is {} {}, wanted {}", path(), entry.name,
                            entry.dtype_name, runtime::shape_text(entry.shape), wanted),
                entry.dtype && *entry.dtype != plan.dtype
                    ? compiler::dtype_hint(plan.name, *entry.dtype)
                    : std::string());
  MOEJIT_TRY_ASSIGN(tensors[plan.name], file_.read(entry));
  return {};
}

}  // namespace moejit::trial
