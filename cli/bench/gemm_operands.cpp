// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/gemm_operands.h"

#include "cli/bench/random_values.h"
#include "cli/bench/run_once.h"
#include "compiler/launch.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "templates/moejit_device/params/tile_chain_params.h"
#include "tests/support/reference/quantize.h"

#include <array>

namespace moejit::cli {
namespace {

int64_t blocks_of(int64_t elements) { return (elements + 127) / 128; }

class OperandMaker {
 public:
  OperandMaker(const GemmCase& gemm, const GemmGroups& groups, runtime::Engine& engine,
               runtime::Device& device, const RandomValues& random, uint64_t seed)
      : gemm_(gemm),
        groups_(groups),
        engine_(engine),
        device_(device),
        random_(random),
        seed_(seed) {}

  Result<GemmOperands> make() {
    MOEJIT_TRY_ASSIGN(operands_.counts, upload_named(device_, "counts", groups_.counts));
    MOEJIT_TRY_ASSIGN(operands_.offs, upload_named(device_, "offs", groups_.offs));
    MOEJIT_TRY(make_a());
    MOEJIT_TRY(make_b());
    return std::move(operands_);
  }

 private:
  Result<NamedMemory> random_bf16(int64_t count, uint64_t seed) {
    MOEJIT_TRY_ASSIGN(NamedMemory values, allocate_named(device_, "values", 2 * count));
    MOEJIT_TRY(random_.fill(values.address(), count, seed));
    return values;
  }

  Result<void> make_a() {
    const int64_t rows = groups_.rows();
    MOEJIT_TRY_ASSIGN(const NamedMemory values, random_bf16(rows * gemm_.k, 2 * seed_));
    MOEJIT_TRY_ASSIGN(operands_.a, allocate_named(device_, "a", rows * gemm_.k));
    MOEJIT_TRY_ASSIGN(operands_.a_scale_inv,
                      allocate_named(device_, "a_scale_inv", 4 * rows * blocks_of(gemm_.k)));
    const compiler::RowChainSpec spec{.quantize = gemm_.scale_sharing_k == 2
                                                      ? compiler::QuantizeStage::k1x128Pairs
                                                      : compiler::QuantizeStage::k1x128,
                                      .store = compiler::StoreStage::kGroupedRows,
                                      .columns = gemm_.k,
                                      .local_experts = gemm_.groups,
                                      .epsilon = reference::kActivationEps};
    const device::RowChainParams params{.input = values.address(),
                                        .counts = operands_.counts.as<const int32_t>(),
                                        .offs = operands_.offs.as<const int32_t>(),
                                        .output = operands_.a.address(),
                                        .output_scale_inv = operands_.a_scale_inv.as<float>(),
                                        .rows = rows};
    const std::array regions = {values.region(), operands_.counts.region(), operands_.offs.region(),
                                operands_.a.region(true), operands_.a_scale_inv.region(true)};
    return run_once(engine_, device_, {.operation = "quantize_a", .spec = spec},
                    compiler::busy_ctas(spec, rows), params, regions);
  }

  Result<void> make_b() {
    const int64_t count = int64_t{gemm_.groups} * gemm_.n * gemm_.k;
    const int32_t section_n = gemm_.n / gemm_.sections;
    const int64_t scales =
        int64_t{gemm_.groups} * gemm_.sections * blocks_of(section_n) * blocks_of(gemm_.k);
    MOEJIT_TRY_ASSIGN(const NamedMemory values, random_bf16(count, 2 * seed_ + 1));
    MOEJIT_TRY_ASSIGN(operands_.b, allocate_named(device_, "b", count));
    MOEJIT_TRY_ASSIGN(operands_.b_scale_inv, allocate_named(device_, "b_scale_inv", 4 * scales));
    const compiler::TileChainSpec spec{.sections = gemm_.sections,
                                       .section_rows = section_n,
                                       .columns = gemm_.k,
                                       .tiles_per_scale = gemm_.scale_sharing_k,
                                       .threads = 256 * gemm_.scale_sharing_k};
    const device::TileChainParams params{.input = values.as<const device::Bf16>(),
                                         .output = operands_.b.as<device::E4m3>(),
                                         .output_scale_inv = operands_.b_scale_inv.as<float>(),
                                         .matrices = gemm_.groups};
    const std::array regions = {values.region(), operands_.b.region(true),
                                operands_.b_scale_inv.region(true)};
    return run_once(engine_, device_, {.operation = "quantize_b", .spec = spec},
                    compiler::busy_ctas(spec, gemm_.groups), params, regions);
  }

  const GemmCase& gemm_;
  const GemmGroups& groups_;
  runtime::Engine& engine_;
  runtime::Device& device_;
  const RandomValues& random_;
  uint64_t seed_;
  GemmOperands operands_;
};

}  // namespace

Result<NamedMemory> allocate_named(runtime::Device& device, std::string_view name, int64_t bytes) {
  NamedMemory named{.name = name, .bytes = bytes, .memory = {}};
  MOEJIT_TRY_ASSIGN(named.memory, DeviceMemory::allocate(device, bytes));
  return named;
}

Result<NamedMemory> upload_named(runtime::Device& device, std::string_view name,
                                 const std::vector<int32_t>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(int32_t));
  MOEJIT_TRY_ASSIGN(NamedMemory memory, allocate_named(device, name, bytes));
  MOEJIT_TRY(device.copy_to_device(memory.address(), values.data(), bytes));
  return memory;
}

Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device,
                                   uint64_t seed) {
  MOEJIT_TRY_ASSIGN(const RandomValues random, RandomValues::create(engine, device));
  return OperandMaker(gemm, groups, engine, device, random, seed).make();
}

}  // namespace moejit::cli
