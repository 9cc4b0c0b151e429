// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_operands.h"

#include "runtime/measure/device_values.h"
#include "runtime/measure/operation_run.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/measure_params.h"

#include <array>

namespace moejit::measure {
namespace {

using compiler::GemmScales;
using compiler::GradientScales;
using compiler::OperationDescription;
using runtime::NamedMemory;

int64_t blocks_of(int64_t elements) { return (elements + 127) / 128; }

// Scales of complete sums belong to the tensors of a group, or to each of their rows and columns.
enum class EndScales { kNone, kOfTensors, kOfRows };

EndScales end_scales_of(const GemmCase& gemm) {
  const bool are_rows = is_row_grouped(gemm);
  if (are_rows ? gemm.scales == GemmScales::kTensor
               : gemm.gradient_scales == GradientScales::kTensor)
    return EndScales::kOfTensors;
  const bool are_of_rows = are_rows ? gemm.scales == GemmScales::kRowColumn
                                    : gemm.gradient_scales == GradientScales::kRowColumn;
  return are_of_rows ? EndScales::kOfRows : EndScales::kNone;
}

// Whether operands are made as bf16 numbers and quantized.
bool is_quantized(const GemmCase& gemm) {
  return !is_row_grouped(gemm) || gemm.scales == GemmScales::kRowBlock;
}

// Returns the type of the random numbers before anything quantizes them.
compiler::DType random_dtype(const GemmCase& gemm) {
  return is_quantized(gemm) ? compiler::DType::kBF16 : operands_of(gemm);
}

// An operand as a matrix of random numbers, and what becomes of it.
struct Matrix {
  std::string_view name, scales_name;
  int64_t rows = 0, columns = 0;
  OperationDescription quantizing = {};  // if it is quantized
  int64_t block_scales = 0;              // that the operation makes
  int64_t rows_with_scales = 0;          // if each has an end scale
};

// Operand A of a row-grouped GEMM [P, k], and B [E * n, k].
std::array<Matrix, 2> row_grouped(const GemmCase& gemm, int64_t rows) {
  const int64_t b_rows = int64_t{gemm.groups} * gemm.n;
  const int64_t b_blocks =
      int64_t{gemm.groups} * gemm.sections * blocks_of(gemm.n / gemm.sections) * blocks_of(gemm.k);
  return {{{.name = "a",
            .scales_name = "a_scale_inv",
            .rows = rows,
            .columns = gemm.k,
            .quantizing = OperationDescription{"quantize",
                                               {{"max_tokens", rows},
                                                {"columns", gemm.k},
                                                {"scale_sharing_k", gemm.scale_sharing_k}}},
            .block_scales = rows * blocks_of(gemm.k),
            .rows_with_scales = rows},
           {.name = "b",
            .scales_name = "b_scale_inv",
            .rows = b_rows,
            .columns = gemm.k,
            .quantizing = OperationDescription{"quantize_weights",
                                               {{"local_experts", gemm.groups},
                                                {"sections", gemm.sections},
                                                {"rows", gemm.n},
                                                {"columns", gemm.k},
                                                {"scale_sharing_k", gemm.scale_sharing_k}}},
            .block_scales = b_blocks,
            .rows_with_scales = b_rows}}};
}

// An operand of a contraction-grouped GEMM [rows, C].
Matrix contraction_grouped(const GemmCase& gemm, std::string_view name,
                           std::string_view scales_name, int32_t rows, int64_t columns) {
  const bool has_tiles = gemm.gradient_scales == GradientScales::kTile;
  Matrix matrix{.name = name,
                .scales_name = scales_name,
                .rows = rows,
                .columns = columns,
                .block_scales = (has_tiles ? blocks_of(rows) : rows) * (columns / 128),
                .rows_with_scales = int64_t{gemm.groups} * rows};
  if (has_tiles)
    matrix.quantizing = {"quantize_weights",
                         {{"local_experts", 1}, {"rows", rows}, {"columns", columns}}};
  else
    matrix.quantizing = {"quantize", {{"max_tokens", rows}, {"columns", columns}}};
  return matrix;
}

// Returns A and B of a GEMM over groups of so many rows, or columns, in all.
std::array<Matrix, 2> matrices_of(const GemmCase& gemm, int64_t rows) {
  if (is_row_grouped(gemm)) return row_grouped(gemm, rows);
  return {contraction_grouped(gemm, "a", "a_scale_inv", gemm.rows, rows),
          contraction_grouped(gemm, "b", "b_scale_inv", gemm.n, rows)};
}

// Returns scales from 1/2 to 2 times the scale that brings random e4m3 back to the deviation 1.
// Different purposes give different ones.
std::vector<float> random_end_scales(int64_t count, uint64_t seed, uint64_t purpose) {
  const reference::RandomStream random(seed, purpose);
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i)
    scales.push_back(
        static_cast<float>((0.5 + 1.5 * random.uniform(static_cast<uint64_t>(i))) / 64.0));
  return scales;
}

// Turns scales [rows, blocks] into [blocks, rows], the order in which wgrad takes scales of rows.
Result<void> put_in_lines(const NamedMemory& scales, int64_t rows, int64_t blocks,
                          runtime::Device& device) {
  std::vector<float> of_rows(static_cast<size_t>(rows * blocks)), lines(of_rows.size());
  MOEJIT_TRY(device.synchronize(nullptr));
  MOEJIT_TRY(device.copy_to_host(of_rows.data(), scales.address(), scales.bytes));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t block = 0; block < blocks; ++block)
      lines[static_cast<size_t>(block * rows + row)] =
          of_rows[static_cast<size_t>(row * blocks + block)];
  return device.copy_to_device(scales.address(), lines.data(), scales.bytes);
}

class OperandMaker {
 public:
  OperandMaker(const GemmCase& gemm, const GemmGroups& groups, runtime::Engine& engine,
               runtime::Device& device)
      : gemm_(gemm), groups_(groups), engine_(engine), device_(device) {}

  Result<std::vector<NamedMemory>> make(uint64_t seed) {
    MOEJIT_TRY_ASSIGN(counts_, upload_named(device_, "counts", groups_.counts));
    MOEJIT_TRY_ASSIGN(offs_, upload_named(device_, "offs", groups_.offs));
    uint64_t purpose = 0;
    for (const Matrix& matrix : matrices_of(gemm_, groups_.rows()))
      MOEJIT_TRY(make(matrix, seed, purpose++));
    operands_.push_back(std::move(counts_));
    operands_.push_back(std::move(offs_));
    return std::move(operands_);
  }

 private:
  Result<void> make(const Matrix& matrix, uint64_t seed, uint64_t purpose) {
    NamedMemory values, scale_inv;
    MOEJIT_TRY(fill(matrix, 2 * seed + purpose, values));
    MOEJIT_TRY(quantize(matrix, values, scale_inv));
    MOEJIT_TRY(add_end_scales(matrix, seed, purpose, scale_inv));
    operands_.push_back(std::move(values));
    if (!scale_inv.name.empty()) operands_.push_back(std::move(scale_inv));
    return {};
  }

  // Makes random numbers, and zeros for what fills up groups.
  Result<void> fill(const Matrix& matrix, uint64_t seed, NamedMemory& values) {
    const int64_t count = matrix.rows * matrix.columns;
    MOEJIT_TRY_ASSIGN(values, allocate_named(device_, is_quantized(gemm_) ? "input" : matrix.name,
                                             compiler::size_bytes(random_dtype(gemm_)) * count));
    MOEJIT_TRY(fill_random(values, random_dtype(gemm_), seed, engine_, device_));
    if (is_row_grouped(gemm_)) return matrix.name == "a" ? zero_pad_rows(values) : Result<void>{};
    return zero_pad_columns(values, matrix.rows, groups_, counts_, offs_, engine_, device_);
  }

  Result<void> zero_pad_rows(const NamedMemory& values) {
    const int64_t row_bytes = compiler::size_bytes(random_dtype(gemm_)) * gemm_.k;
    for (size_t group = 0; group < groups_.counts.size(); ++group) {
      const int64_t end = groups_.offs[group] + groups_.counts[group];
      const int64_t pad_rows = groups_.offs[group + 1] - end;
      if (pad_rows == 0) continue;
      MOEJIT_TRY(device_.fill(values.as<std::byte>() + end * row_bytes, std::byte{0},
                              pad_rows * row_bytes, nullptr));
    }
    return {};
  }

  // Replaces bf16 values by their codes, and makes the scales of their blocks.
  Result<void> quantize(const Matrix& matrix, NamedMemory& values, NamedMemory& scale_inv) {
    if (!is_quantized(gemm_)) return {};
    MOEJIT_TRY_ASSIGN(NamedMemory codes, allocate_named(device_, "output", values.bytes / 2));
    MOEJIT_TRY_ASSIGN(scale_inv,
                      allocate_named(device_, "output_scale_inv", 4 * matrix.block_scales));
    MOEJIT_TRY(run_operation(matrix.quantizing, engine_, device_, {&values, &codes, &scale_inv}));
    scale_inv.name = matrix.scales_name;
    values = std::move(codes);
    if (!is_row_grouped(gemm_)) MOEJIT_TRY(put_in_blocks(matrix, values, scale_inv));
    values.name = matrix.name;
    return {};
  }

  // Puts codes and scales in the order in which wgrad takes them.
  Result<void> put_in_blocks(const Matrix& matrix, NamedMemory& codes,
                             const NamedMemory& scale_inv) {
    if (gemm_.gradient_scales != GradientScales::kTile)
      MOEJIT_TRY(put_in_lines(scale_inv, matrix.rows, matrix.columns / 128, device_));
    MOEJIT_TRY_ASSIGN(NamedMemory blocks, allocate_named(device_, matrix.name, codes.bytes));
    MOEJIT_TRY(put_in_column_blocks(codes, matrix.rows, matrix.columns, blocks, engine_, device_));
    codes = std::move(blocks);
    return {};
  }

  // Makes scales of complete sums in the place of the scales of blocks.
  Result<void> add_end_scales(const Matrix& matrix, uint64_t seed, uint64_t purpose,
                              NamedMemory& scale_inv) {
    const EndScales scales = end_scales_of(gemm_);
    if (scales == EndScales::kNone) return {};
    const int64_t count = scales == EndScales::kOfRows ? matrix.rows_with_scales : gemm_.groups;
    MOEJIT_TRY_ASSIGN(scale_inv, upload_named(device_, matrix.scales_name,
                                              random_end_scales(count, seed, purpose)));
    return {};
  }

  const GemmCase& gemm_;
  const GemmGroups& groups_;
  runtime::Engine& engine_;
  runtime::Device& device_;
  NamedMemory counts_, offs_;
  std::vector<NamedMemory> operands_;
};

}  // namespace

Result<std::vector<NamedMemory>> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                               runtime::Engine& engine, runtime::Device& device,
                                               uint64_t seed) {
  return OperandMaker(gemm, groups, engine, device).make(seed);
}

Result<std::vector<compiler::KernelSource>> operand_sources(const GemmCase& gemm,
                                                            const compiler::Target& target) {
  std::vector<compiler::KernelSource> sources = {random_values_source(random_dtype(gemm), target)};
  if (!is_row_grouped(gemm))
    for (const char* const name : {"pad_columns", "column_blocks"})
      sources.push_back(measuring_kernel(name, target));
  if (!is_quantized(gemm)) return sources;
  for (const Matrix& matrix : matrices_of(gemm, make_groups(gemm).rows())) {
    MOEJIT_TRY_ASSIGN(sources.emplace_back(), source_of(matrix.quantizing, target));
  }
  return sources;
}

Result<void> zero_pad_columns(const NamedMemory& matrix, int64_t rows, const GemmGroups& groups,
                              const NamedMemory& counts, const NamedMemory& offs,
                              runtime::Engine& engine, runtime::Device& device) {
  const device::PadColumnsParams params{.matrix = matrix.as<device::Bf16>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .rows = rows,
                                        .groups = static_cast<int64_t>(groups.counts.size())};
  const std::array regions = {matrix.region(true), counts.region(), offs.region()};
  return run_on_rows(engine, device, "pad_columns", rows, params, regions);
}

Result<void> put_in_column_blocks(const NamedMemory& matrix, int64_t rows, int64_t columns,
                                  const NamedMemory& blocks, runtime::Engine& engine,
                                  runtime::Device& device) {
  const device::ColumnBlocksParams params{.matrix = matrix.as<const uint32_t>(),
                                          .blocks = blocks.as<uint32_t>(),
                                          .rows = rows,
                                          .columns = columns};
  const std::array regions = {matrix.region(), blocks.region(true)};
  return run_on_rows(engine, device, "column_blocks", rows, params, regions);
}

}  // namespace moejit::measure
