// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation.h"
#include "runtime/trial/gemm_trial.h"
#include "runtime/tune/tune_problem.h"

namespace moejit::tune {

Result<TuneProblem> problem_of(const measure::GemmCase& gemm, const compiler::Target& target,
                               uint64_t seed) {
  const auto plan_case =
      [gemm, target](
          const compiler::PlanOptions& options) -> Result<std::shared_ptr<const compiler::Plan>> {
    const auto operation = operation_of(gemm, make_groups(gemm).rows());
    MOEJIT_TRY_ASSIGN(compiler::Plan plan, plan_operation(operation, target, options));
    return std::make_shared<const compiler::Plan>(std::move(plan));
  };
  MOEJIT_TRY_ASSIGN(const auto plan, plan_case({.list_candidates = true}));
  const compiler::KernelPlan& kernel = plan->kernels.front();
  TuneProblem problem{.name = kernel.problem,
                      .subject = gemm.name,
                      .step_us = estimated_us(kernel),
                      .candidates = kernel.candidates,
                      .plan = plan_case};
  problem.open = [gemm, seed, problem](runtime::Engine& engine,
                                       runtime::Device& device) -> Result<OpenedKernel> {
    MOEJIT_TRY_ASSIGN(const std::shared_ptr<trial::GemmTrial> made,
                      trial::GemmTrial::create(gemm, engine, device, seed));
    return open_kernel(problem, {made, &made->trial()}, engine, device);
  };
  return problem;
}

}  // namespace moejit::tune
