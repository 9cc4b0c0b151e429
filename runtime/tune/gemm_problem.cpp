// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation.h"
#include "runtime/measure/gemm_session.h"
#include "runtime/tune/tune_problem.h"

namespace moejit::tune {
namespace {

using compiler::Choices;
using compiler::Plan;
using compiler::PlanOptions;
using measure::GemmCase;
using measure::GemmSession;
using measure::Launch;

Result<std::shared_ptr<const Plan>> plan_case(const GemmCase& gemm, const compiler::Target& target,
                                              const PlanOptions& options) {
  const auto operation = operation_of(gemm, make_groups(gemm).rows());
  MOEJIT_TRY_ASSIGN(Plan plan, plan_operation(operation, target, options));
  return std::make_shared<const Plan>(std::move(plan));
}

// Returns the case's kernel with its versions. The session is its owner.
OpenedKernel kernel_of(std::shared_ptr<GemmSession> session, const std::string& problem,
                       const std::vector<Choices>& candidates, runtime::Engine& engine) {
  const runtime::NamedMemory& result = session->result();
  OpenedKernel opened;
  opened.kernel.problem = problem;
  opened.kernel.candidates = candidates;
  opened.kernel.written = {
      {.address = result.address(), .bytes = result.bytes, .is_added_to = session->is_added_to()}};
  opened.kernel.make = [session = session.get(), problem,
                        &engine](const Choices& choices) -> Result<Launch> {
    const compiler::Tuning tuning = tuning_of(problem, choices);
    MOEJIT_TRY_ASSIGN(measure::OperationRun run, session->version({.tuning = &tuning}, engine));
    const auto shared = std::make_shared<measure::OperationRun>(std::move(run));
    return Launch([shared] { return shared->launch(); });
  };
  opened.owner = std::move(session);
  return opened;
}

}  // namespace

Result<TuneProblem> problem_of(const GemmCase& gemm, const compiler::Target& target,
                               uint64_t seed) {
  MOEJIT_TRY_ASSIGN(const auto plan, plan_case(gemm, target, {.list_candidates = true}));
  const compiler::KernelPlan& kernel = plan->kernels.front();
  TuneProblem problem{.name = kernel.problem,
                      .subject = gemm.name,
                      .step_us = estimated_us(kernel),
                      .candidates = kernel.candidates};
  problem.plan = [gemm, target](const PlanOptions& options) {
    return plan_case(gemm, target, options);
  };
  problem.open = [gemm, seed, name = problem.name, candidates = problem.candidates](
                     runtime::Engine& engine, runtime::Device& device) -> Result<OpenedKernel> {
    MOEJIT_TRY_ASSIGN(std::unique_ptr<GemmSession> session,
                      GemmSession::create(gemm, engine, device, seed));
    return kernel_of(std::move(session), name, candidates, engine);
  };
  return problem;
}

}  // namespace moejit::tune
