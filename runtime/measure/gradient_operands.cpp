// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/device_values.h"
#include "runtime/measure/gemm_operands.h"
#include "runtime/measure/operation_run.h"
#include "templates/moejit_device/params/measure_params.h"

#include <array>

namespace moejit::measure {
namespace {

using runtime::NamedMemory;

struct QuantizedMatrix {
  NamedMemory q;          // E4M3 [C / 128, rows, 128]
  NamedMemory scale_inv;  // F32 [ceil(rows / 128), C / 128] or [C / 128, rows]
};

bool has_tiles(const GemmCase& gemm) {
  return gemm.gradient_scales == compiler::GradientScales::kTile;
}

bool has_end_scales(const GemmCase& gemm) {
  return gemm.gradient_scales == compiler::GradientScales::kTensor ||
         gemm.gradient_scales == compiler::GradientScales::kRowColumn;
}

// Returns the operation that quantizes a matrix.
compiler::OperationDescription quantizing(const GemmCase& gemm, int32_t rows, int64_t columns) {
  if (has_tiles(gemm))
    return {"quantize_weights", {{"local_experts", 1}, {"rows", rows}, {"columns", columns}}};
  return {"quantize", {{"max_tokens", rows}, {"columns", columns}}};
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

class GradientOperandMaker {
 public:
  GradientOperandMaker(const GemmCase& gemm, const GemmGroups& groups, runtime::Engine& engine,
                       runtime::Device& device, const RandomValues& random)
      : gemm_(gemm), groups_(groups), engine_(engine), device_(device), random_(random) {}

  Result<GemmOperands> make(uint64_t seed) {
    MOEJIT_TRY_ASSIGN(operands_.counts, upload_named(device_, "counts", groups_.counts));
    MOEJIT_TRY_ASSIGN(operands_.offs, upload_named(device_, "offs", groups_.offs));
    MOEJIT_TRY_ASSIGN(QuantizedMatrix a, random_matrix("a", "a_scale_inv", gemm_.rows, 2 * seed));
    MOEJIT_TRY_ASSIGN(QuantizedMatrix b, random_matrix("b", "b_scale_inv", gemm_.n, 2 * seed + 1));
    operands_.a = std::move(a.q);
    operands_.a_scale_inv = std::move(a.scale_inv);
    operands_.b = std::move(b.q);
    operands_.b_scale_inv = std::move(b.scale_inv);
    if (has_end_scales(gemm_)) {
      MOEJIT_TRY_ASSIGN(operands_.a_scale_inv, end_scales("a_scale_inv", gemm_.rows, seed, 0));
      MOEJIT_TRY_ASSIGN(operands_.b_scale_inv, end_scales("b_scale_inv", gemm_.n, seed, 1));
    }
    return std::move(operands_);
  }

 private:
  int64_t columns() const { return groups_.rows(); }

  // Makes a scale for each group, or for each row of each group.
  Result<NamedMemory> end_scales(std::string_view name, int32_t rows, uint64_t seed,
                                 uint64_t purpose) {
    const bool by_row = gemm_.gradient_scales == compiler::GradientScales::kRowColumn;
    const int64_t count = gemm_.groups * (by_row ? int64_t{rows} : 1);
    return upload_named(device_, name, random_end_scales(count, seed, purpose));
  }

  Result<QuantizedMatrix> random_matrix(std::string_view name, std::string_view scales_name,
                                        int32_t rows, uint64_t seed) {
    const int64_t scale_rows = has_tiles(gemm_) ? (int64_t{rows} + 127) / 128 : rows;
    MOEJIT_TRY_ASSIGN(const NamedMemory values,
                      allocate_named(device_, "input", 2 * rows * columns()));
    MOEJIT_TRY(random_.fill(values.address(), rows * columns(), seed));
    MOEJIT_TRY(zero_pad_columns(values, rows, groups_, operands_.counts, operands_.offs, engine_,
                                device_));
    MOEJIT_TRY_ASSIGN(const NamedMemory codes, allocate_named(device_, "output", rows * columns()));
    QuantizedMatrix matrix;
    MOEJIT_TRY_ASSIGN(matrix.q, allocate_named(device_, name, rows * columns()));
    MOEJIT_TRY_ASSIGN(matrix.scale_inv, allocate_named(device_, "output_scale_inv",
                                                       4 * scale_rows * (columns() / 128)));
    MOEJIT_TRY(run_operation(quantizing(gemm_, rows, columns()), engine_, device_,
                             {&values, &codes, &matrix.scale_inv}));
    matrix.scale_inv.name = scales_name;
    if (!has_tiles(gemm_))
      MOEJIT_TRY(put_in_lines(matrix.scale_inv, rows, columns() / 128, device_));
    MOEJIT_TRY(put_in_column_blocks(codes, rows, columns(), matrix.q, engine_, device_));
    return matrix;
  }

  const GemmCase& gemm_;
  const GemmGroups& groups_;
  runtime::Engine& engine_;
  runtime::Device& device_;
  const RandomValues& random_;
  GemmOperands operands_;
};

}  // namespace

Result<GemmOperands> make_gradient_operands(const GemmCase& gemm, const GemmGroups& groups,
                                            runtime::Engine& engine, runtime::Device& device,
                                            uint64_t seed) {
  MOEJIT_TRY_ASSIGN(const RandomValues random,
                    RandomValues::create(compiler::DType::kBF16, engine, device));
  return GradientOperandMaker(gemm, groups, engine, device, random).make(seed);
}

Result<std::vector<compiler::KernelSource>> gradient_operand_sources(
    const GemmCase& gemm, const compiler::Target& target) {
  std::vector<compiler::KernelSource> sources = {
      random_values_source(compiler::DType::kBF16, target), measuring_kernel("pad_columns", target),
      measuring_kernel("column_blocks", target)};
  const int64_t columns = make_groups(gemm).rows();
  for (const int32_t rows : {gemm.rows, gemm.n}) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source,
                      source_of(quantizing(gemm, rows, columns), target));
    sources.push_back(std::move(source));
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
