// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_operands.h"

#include "compiler/launch.h"
#include "runtime/measure/random_values.h"
#include "runtime/measure/run_once.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "templates/moejit_device/params/tile_chain_params.h"

#include <array>

namespace moejit::measure {
namespace {

using runtime::NamedMemory;

int64_t blocks_of(int64_t elements) { return (elements + 127) / 128; }

compiler::KernelPlan quantize_a(const GemmCase& gemm) {
  return {.operation = "quantize_a",
          .spec = compiler::RowChainSpec{.quantize = gemm.scale_sharing_k == 2
                                                         ? compiler::QuantizeStage::k1x128Pairs
                                                         : compiler::QuantizeStage::k1x128,
                                         .store = compiler::StoreStage::kGroupedRows,
                                         .columns = gemm.k,
                                         .local_experts = gemm.groups,
                                         .epsilon = reference::kActivationEps}};
}

compiler::KernelPlan quantize_b(const GemmCase& gemm) {
  return {.operation = "quantize_b",
          .spec = compiler::TileChainSpec{.sections = gemm.sections,
                                          .section_rows = gemm.n / gemm.sections,
                                          .columns = gemm.k,
                                          .tiles_per_scale = gemm.scale_sharing_k,
                                          .threads = 256 * gemm.scale_sharing_k}};
}

bool has_blocks(const GemmCase& gemm) { return gemm.scales == compiler::GemmScales::kRowBlock; }

// What the random numbers are before anything quantises them.
compiler::DType random_dtype(const GemmCase& gemm) {
  return has_blocks(gemm) ? compiler::DType::kBF16 : operands_of(gemm);
}

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
    MOEJIT_TRY_ASSIGN(operands_.a, random_values("a", groups_.rows() * gemm_.k, 2 * seed_));
    MOEJIT_TRY_ASSIGN(operands_.b,
                      random_values("b", int64_t{gemm_.groups} * gemm_.n * gemm_.k, 2 * seed_ + 1));
    if (has_blocks(gemm_)) {
      MOEJIT_TRY(quantize_rows());
      MOEJIT_TRY(quantize_matrices());
    } else {
      MOEJIT_TRY(clear_pad_rows());
      MOEJIT_TRY(make_end_scales());
    }
    return std::move(operands_);
  }

 private:
  Result<NamedMemory> random_values(std::string_view name, int64_t count, uint64_t seed) {
    const int64_t bytes = compiler::size_bytes(random_dtype(gemm_)) * count;
    MOEJIT_TRY_ASSIGN(NamedMemory values, allocate_named(device_, name, bytes));
    MOEJIT_TRY(random_.fill(values.address(), count, seed));
    return values;
  }

  // Quantises the numbers in operands_.a.
  Result<void> quantize_rows() {
    const int64_t rows = groups_.rows();
    const NamedMemory values = std::move(operands_.a);
    MOEJIT_TRY_ASSIGN(operands_.a, allocate_named(device_, "a", rows * gemm_.k));
    MOEJIT_TRY_ASSIGN(operands_.a_scale_inv,
                      allocate_named(device_, "a_scale_inv", 4 * rows * blocks_of(gemm_.k)));
    const device::RowChainParams params{.input = values.address(),
                                        .counts = operands_.counts.as<const int32_t>(),
                                        .offs = operands_.offs.as<const int32_t>(),
                                        .output = operands_.a.address(),
                                        .output_scale_inv = operands_.a_scale_inv.as<float>(),
                                        .rows = rows};
    const std::array regions = {values.region(), operands_.counts.region(), operands_.offs.region(),
                                operands_.a.region(true), operands_.a_scale_inv.region(true)};
    const compiler::KernelPlan kernel = quantize_a(gemm_);
    const int64_t ctas = compiler::busy_ctas(std::get<compiler::RowChainSpec>(kernel.spec), rows);
    return run_once(engine_, device_, kernel, ctas, params, regions);
  }

  // Those in operands_.b.
  Result<void> quantize_matrices() {
    const int64_t scales = int64_t{gemm_.groups} * gemm_.sections *
                           blocks_of(gemm_.n / gemm_.sections) * blocks_of(gemm_.k);
    const NamedMemory values = std::move(operands_.b);
    MOEJIT_TRY_ASSIGN(operands_.b, allocate_named(device_, "b", values.bytes / 2));
    MOEJIT_TRY_ASSIGN(operands_.b_scale_inv, allocate_named(device_, "b_scale_inv", 4 * scales));
    const device::TileChainParams params{.input = values.as<const device::Bf16>(),
                                         .output = operands_.b.as<device::E4m3>(),
                                         .output_scale_inv = operands_.b_scale_inv.as<float>(),
                                         .matrices = gemm_.groups};
    const std::array regions = {values.region(), operands_.b.region(true),
                                operands_.b_scale_inv.region(true)};
    const compiler::KernelPlan kernel = quantize_b(gemm_);
    const int64_t ctas =
        compiler::busy_ctas(std::get<compiler::TileChainSpec>(kernel.spec), gemm_.groups);
    return run_once(engine_, device_, kernel, ctas, params, regions);
  }

  Result<void> clear_pad_rows() {
    const int64_t row_bytes = compiler::size_bytes(operands_of(gemm_)) * gemm_.k;
    for (size_t group = 0; group < groups_.counts.size(); ++group) {
      const int64_t end = groups_.offs[group] + groups_.counts[group];
      const int64_t pad_rows = groups_.offs[group + 1] - end;
      if (pad_rows == 0) continue;
      MOEJIT_TRY(device_.fill(operands_.a.as<std::byte>() + end * row_bytes, std::byte{0},
                              pad_rows * row_bytes, nullptr));
    }
    return {};
  }

  // Scales of rows and columns, or of each group's tensors: from 1/2 to 2 times those that bring
  // e4m3 back to the deviation 1.
  Result<void> make_end_scales() {
    if (gemm_.scales == compiler::GemmScales::kNone) return {};
    const bool is_tensor = gemm_.scales == compiler::GemmScales::kTensor;
    const int64_t a_count = is_tensor ? gemm_.groups : groups_.rows();
    const int64_t b_count = is_tensor ? gemm_.groups : int64_t{gemm_.groups} * gemm_.n;
    MOEJIT_TRY_ASSIGN(operands_.a_scale_inv,
                      upload_named(device_, "a_scale_inv", random_scales(a_count, 0)));
    MOEJIT_TRY_ASSIGN(operands_.b_scale_inv,
                      upload_named(device_, "b_scale_inv", random_scales(b_count, 1)));
    return {};
  }

  std::vector<float> random_scales(int64_t count, uint64_t purpose) const {
    const reference::RandomStream random(seed_, purpose);
    std::vector<float> scales;
    for (int64_t i = 0; i < count; ++i)
      scales.push_back(
          static_cast<float>((0.5 + 1.5 * random.uniform(static_cast<uint64_t>(i))) / 64.0));
    return scales;
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

Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device,
                                   uint64_t seed) {
  MOEJIT_TRY_ASSIGN(const RandomValues random,
                    RandomValues::create(random_dtype(gemm), engine, device));
  return OperandMaker(gemm, groups, engine, device, random, seed).make();
}

Result<std::vector<compiler::KernelSource>> operand_sources(const GemmCase& gemm,
                                                            const compiler::Target& target) {
  std::vector<compiler::KernelSource> sources = {random_values_source(random_dtype(gemm), target)};
  if (!has_blocks(gemm)) return sources;
  for (const compiler::KernelPlan& kernel : {quantize_a(gemm), quantize_b(gemm)}) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, emit_kernel(kernel, target));
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace moejit::measure
