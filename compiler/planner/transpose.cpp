// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "compiler/planner/planner_steps.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

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

namespace {

// Checks that a dtype is one of `wanted`.
Result<void> check_format(std::string_view what, DType got, std::span<const DType> wanted) {
  if (std::ranges::find(wanted, got) != wanted.end()) return {};
  std::string names;
  for (const DType dtype : wanted) {
    if (!names.empty()) names += " or ";
    names += to_string(dtype);
  }
  return fail(
      Stage::kPlan, ErrorCode::kUnsupported,
      fmt::format("a multi-cast-transpose with {} {}: wanted {}", what, to_string(got), names));
}

}  // namespace

Result<KernelPlan> plan_multi_cast_transpose(const MultiCastTransposeSpec& problem,
                                             std::span<const MatrixSize> sizes) {
  constexpr DType kInputs[] = {DType::kBF16, DType::kF32};
  constexpr DType kOutputs[] = {DType::kF8E4M3, DType::kF8E5M2};
  MOEJIT_TRY(check_format("input", problem.input, kInputs));
  MOEJIT_TRY(check_format("output", problem.output, kOutputs));
  // The default of 256 threads can hold a tile.
  const MultiCastTransposeSpec spec{.input = problem.input, .output = problem.output};
  KernelPlan kernel{
      .operation = "multi_cast_transpose",
      .spec = spec,
      .launch = launch_shape(spec),
      .arguments = {{"tensors", "tensors"}, {"tile_ends", "tile_ends"}, {"skip", "skip"}},
      .reasons = {"one launch for any number of tensors of any sizes: a CTA looks up whose tile it "
                  "has",
                  "both orientations and the largest magnitude from one read"},
  };
  const std::vector<int64_t> ends = cast_transpose_tile_ends(sizes);
  kernel.bounds.list_tiles = ends.empty() ? 0 : ends.back();
  kernel.bounds.list_length = std::ssize(sizes);
  for (const MatrixSize& size : sizes) kernel.bounds.list_elements += size.rows * size.columns;
  kernel.min_bytes = count_work(kernel, {}).min_bytes;
  kernel.launch.max_ctas = kernel.bounds.list_tiles;
  kernel.numbers = kernel_numbers(spec, kernel.bounds);
  set_access(kernel);
  return kernel;
}

}  // namespace moejit::compiler
