// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_operands.h"

#include "runtime/measure/device_values.h"
#include "runtime/measure/operation_run.h"
#include "runtime/reference/random_inputs.h"

namespace moejit::measure {
namespace {

using compiler::OperationDescription;
using runtime::NamedMemory;

int64_t blocks_of(int64_t elements) { return (elements + 127) / 128; }

OperationDescription quantize_a(const GemmCase& gemm, int64_t rows) {
  return {"quantize",
          {{"max_tokens", rows}, {"columns", gemm.k}, {"scale_sharing_k", gemm.scale_sharing_k}}};
}

OperationDescription quantize_b(const GemmCase& gemm) {
  return {"quantize_weights",
          {{"local_experts", gemm.groups},
           {"sections", gemm.sections},
           {"rows", gemm.n},
           {"columns", gemm.k},
           {"scale_sharing_k", gemm.scale_sharing_k}}};
}

bool has_blocks(const GemmCase& gemm) { return gemm.scales == compiler::GemmScales::kRowBlock; }

// Returns the type of the random numbers before anything quantizes them.
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
    MOEJIT_TRY(clear_pad_rows());
    if (has_blocks(gemm_)) {
      MOEJIT_TRY(quantize_rows());
      MOEJIT_TRY(quantize_matrices());
    } else {
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

  Result<void> quantize_rows() {
    const int64_t rows = groups_.rows();
    return quantize(quantize_a(gemm_, rows), "a", rows * blocks_of(gemm_.k), operands_.a,
                    operands_.a_scale_inv, "a_scale_inv");
  }

  Result<void> quantize_matrices() {
    const int64_t scales = int64_t{gemm_.groups} * gemm_.sections *
                           blocks_of(gemm_.n / gemm_.sections) * blocks_of(gemm_.k);
    return quantize(quantize_b(gemm_), "b", scales, operands_.b, operands_.b_scale_inv,
                    "b_scale_inv");
  }

  // Replaces bf16 values by their codes, and makes their scales.
  Result<void> quantize(const OperationDescription& operation, std::string_view name,
                        int64_t scales, NamedMemory& values, NamedMemory& scale_inv,
                        std::string_view scales_name) {
    values.name = "input";
    MOEJIT_TRY_ASSIGN(NamedMemory codes, allocate_named(device_, "output", values.bytes / 2));
    MOEJIT_TRY_ASSIGN(scale_inv, allocate_named(device_, "output_scale_inv", 4 * scales));
    MOEJIT_TRY(run_operation(operation, engine_, device_, {&values, &codes, &scale_inv}));
    values = std::move(codes);
    values.name = name;
    scale_inv.name = scales_name;
    return {};
  }

  Result<void> clear_pad_rows() {
    const int64_t row_bytes = compiler::size_bytes(random_dtype(gemm_)) * gemm_.k;
    for (size_t group = 0; group < groups_.counts.size(); ++group) {
      const int64_t end = groups_.offs[group] + groups_.counts[group];
      const int64_t pad_rows = groups_.offs[group + 1] - end;
      if (pad_rows == 0) continue;
      MOEJIT_TRY(device_.fill(operands_.a.as<std::byte>() + end * row_bytes, std::byte{0},
                              pad_rows * row_bytes, nullptr));
    }
    return {};
  }

  // Makes scales of rows and columns, or of each group's tensors.
  Result<void> make_end_scales() {
    if (gemm_.scales == compiler::GemmScales::kNone) return {};
    const bool is_tensor = gemm_.scales == compiler::GemmScales::kTensor;
    const int64_t a_count = is_tensor ? gemm_.groups : groups_.rows();
    const int64_t b_count = is_tensor ? gemm_.groups : int64_t{gemm_.groups} * gemm_.n;
    MOEJIT_TRY_ASSIGN(operands_.a_scale_inv,
                      upload_named(device_, "a_scale_inv", random_end_scales(a_count, seed_, 0)));
    MOEJIT_TRY_ASSIGN(operands_.b_scale_inv,
                      upload_named(device_, "b_scale_inv", random_end_scales(b_count, seed_, 1)));
    return {};
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

std::vector<float> random_end_scales(int64_t count, uint64_t seed, uint64_t purpose) {
  const reference::RandomStream random(seed, purpose);
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i)
    scales.push_back(
        static_cast<float>((0.5 + 1.5 * random.uniform(static_cast<uint64_t>(i))) / 64.0));
  return scales;
}

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
  for (const OperationDescription& operation :
       {quantize_a(gemm, make_groups(gemm).rows()), quantize_b(gemm)}) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, source_of(operation, target));
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace moejit::measure
