// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/param_record.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

namespace moejit::compiler {
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
