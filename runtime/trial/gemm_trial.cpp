// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/gemm_trial.h"

#include "runtime/measure/gemm_operands.h"
#include "runtime/measure/operation_run.h"

namespace moejit::trial {

using compiler::KernelSource;
using compiler::TensorPlan;
using measure::GemmCase;
using runtime::NamedMemory;

Result<std::unique_ptr<GemmTrial>> GemmTrial::create(const GemmCase& gemm, runtime::Engine& engine,
                                                     runtime::Device& device, uint64_t seed) {
  std::unique_ptr<GemmTrial> made(new GemmTrial(gemm));
  const auto operation = operation_of(gemm, made->groups_.rows());
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, plan_operation(operation, device.target()));
  MOEJIT_TRY_ASSIGN(std::vector<NamedMemory> tensors,
                    make_operands(gemm, made->groups_, engine, device, seed));
  for (const char* const output : {"d", "elapsed"}) {
    MOEJIT_TRY_ASSIGN(tensors.emplace_back(),
                      allocate_named(device, output, find_tensor(plan, output)->bytes));
  }
  MOEJIT_TRY_ASSIGN(made->trial_, Trial::create(plan, engine, device, std::move(tensors)));
  MOEJIT_TRY(made->reset_result());
  return made;
}

Result<std::vector<KernelSource>> GemmTrial::sources(const GemmCase& gemm,
                                                     const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(std::vector<KernelSource> sources, operand_sources(gemm, target));
  const auto operation = operation_of(gemm, make_groups(gemm).rows());
  MOEJIT_TRY_ASSIGN(sources.emplace_back(), measure::source_of(operation, target));
  return sources;
}

Result<void> GemmTrial::reset_result() {
  constexpr std::byte kOldByte{0x44};     // each byte of old_value()
  constexpr std::byte kPoisonByte{0xff};  // makes a NaN, in bf16 and in fp32
  const bool is_added_to = reads(kernel(), "d");
  return trial_->device().fill(trial_->tensors().address_of("d"),
                               is_added_to ? kOldByte : kPoisonByte,
                               find_tensor(trial_->plan(), "d")->bytes, nullptr);
}

}  // namespace moejit::trial
