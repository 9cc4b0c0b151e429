// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/planner/complete_kernel.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

Result<void> check(const TransposeSpec& problem, int64_t output_columns) {
  const auto refuse = [](std::string_view what, const auto& got, std::string_view wanted) {
    return fail(Stage::kPlan, ErrorCode::kUnsupported,
                fmt::format("a transpose with {} {}: wanted {}", what, got, wanted));
  };
  if (problem.format != DType::kF8E4M3 && problem.format != DType::kF8E5M2)
    return refuse("format", to_string(problem.format), "F8_E4M3 or F8_E5M2");
  if (problem.columns <= 0 || problem.columns % 16 != 0)
    return refuse("columns", problem.columns, "a multiple of 16");
  if (problem.local_experts <= 0)
    return refuse("local_experts", problem.local_experts, "1 or more");
  if (output_columns < 0 || output_columns % 128 != 0)
    return refuse("output columns", output_columns, "a multiple of 128");
  return {};
}

}  // namespace

Result<KernelPlan> plan_transpose(const TransposeSpec& problem, int64_t rows,
                                  int64_t output_columns) {
  MOEJIT_TRY(check(problem, output_columns));
  TransposeSpec spec = problem;
  spec.threads = TransposeSpec{}.threads;
  KernelPlan kernel{
      .operation = "transpose",
      .spec = spec,
      .arguments = {{"input", "input"},
                    {"input_scale_inv", "input_scale_inv"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output_offs", "output_offs"},
                    {"output", "output"},
                    {"output_scale_inv", "output_scale_inv"},
                    {"status", "status"}},
      .reasons = {spec.rule == TransposeRule::kKeepBytes
                      ? "bytes are copied as they are"
                      : "bytes are multiplied by powers of two: nothing is quantized again"},
  };
  if (spec.rule == TransposeRule::kKeepBytes)
    std::erase_if(kernel.arguments, [](const KernelArgument& argument) {
      return argument.role.ends_with("_scale_inv") || argument.role == "status";
    });
  if (spec.source != RowSource::kInOrder) kernel.arguments.push_back({"row_tokens", "row_tokens"});
  if (spec.counts_flushed) kernel.arguments.push_back({"flushed", "flushed"});
  complete_kernel(kernel, bounds_of_rows(rows, spec.local_experts));
  kernel.launch.max_ctas = busy_ctas(spec, output_columns);
  return kernel;
}

}  // namespace moejit::compiler
