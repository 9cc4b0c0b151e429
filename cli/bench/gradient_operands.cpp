// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/gradient_operands.h"

#include "cli/bench/pad_columns.h"
#include "cli/bench/random_values.h"
#include "cli/bench/run_once.h"
#include "templates/moejit_device/params/tile_chain_params.h"

#include <array>

namespace moejit::cli {
namespace {

struct QuantizedMatrix {
  NamedMemory q;          // E4M3 [rows, C]
  NamedMemory scale_inv;  // F32 [ceil(rows / 128), C / 128]
};

class GradientOperandMaker {
 public:
  GradientOperandMaker(const GemmGroups& groups, runtime::Engine& engine, runtime::Device& device,
                       const RandomValues& random)
      : groups_(groups), engine_(engine), device_(device), random_(random) {}

  Result<GemmOperands> make(const GemmCase& gemm, uint64_t seed) {
    MOEJIT_TRY_ASSIGN(operands_.counts, upload_named(device_, "counts", groups_.counts));
    MOEJIT_TRY_ASSIGN(operands_.offs, upload_named(device_, "offs", groups_.offs));
    MOEJIT_TRY_ASSIGN(QuantizedMatrix a, quantized("a", "a_scale_inv", gemm.rows, 2 * seed));
    MOEJIT_TRY_ASSIGN(QuantizedMatrix b, quantized("b", "b_scale_inv", gemm.n, 2 * seed + 1));
    operands_.a = std::move(a.q);
    operands_.a_scale_inv = std::move(a.scale_inv);
    operands_.b = std::move(b.q);
    operands_.b_scale_inv = std::move(b.scale_inv);
    return std::move(operands_);
  }

 private:
  Result<QuantizedMatrix> quantized(std::string_view name, std::string_view scales_name,
                                    int32_t rows, uint64_t seed) {
    const int64_t columns = groups_.rows();
    MOEJIT_TRY_ASSIGN(const NamedMemory values,
                      allocate_named(device_, "values", 2 * rows * columns));
    MOEJIT_TRY(random_.fill(values.address(), rows * columns, seed));
    MOEJIT_TRY(zero_pad_columns(values, rows, groups_, operands_.counts, operands_.offs, engine_,
                                device_));
    const int64_t scales = (int64_t{rows} + 127) / 128 * (columns / 128);
    QuantizedMatrix matrix;
    MOEJIT_TRY_ASSIGN(matrix.q, allocate_named(device_, name, rows * columns));
    MOEJIT_TRY_ASSIGN(matrix.scale_inv, allocate_named(device_, scales_name, 4 * scales));
    const compiler::TileChainSpec spec{.section_rows = rows,
                                       .columns = static_cast<int32_t>(columns)};
    const device::TileChainParams params{.input = values.as<const device::Bf16>(),
                                         .output = matrix.q.as<device::E4m3>(),
                                         .output_scale_inv = matrix.scale_inv.as<float>(),
                                         .matrices = 1};
    const std::array regions = {values.region(), matrix.q.region(true),
                                matrix.scale_inv.region(true)};
    MOEJIT_TRY(run_once(engine_, device_, {.operation = "quantize_tiles", .spec = spec},
                        compiler::busy_ctas(spec, 1), params, regions));
    return matrix;
  }

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
  MOEJIT_TRY_ASSIGN(const RandomValues random, RandomValues::create(engine, device));
  return GradientOperandMaker(groups, engine, device, random).make(gemm, seed);
}

}  // namespace moejit::cli
