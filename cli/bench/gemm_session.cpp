// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/gemm_session.h"

#include <algorithm>
#include <span>

namespace moejit::cli {
namespace {

Result<compiler::KernelPlan> plan_of(const GemmCase& gemm) {
  return compiler::plan_grouped_gemm(problem_of(gemm), make_groups(gemm).rows());
}

}  // namespace

Result<std::unique_ptr<GemmSession>> GemmSession::create(const GemmCase& gemm,
                                                         runtime::Engine& engine,
                                                         runtime::Device& device, uint64_t seed) {
  std::unique_ptr<GemmSession> session(new GemmSession(device));
  session->gemm_ = gemm;
  session->groups_ = make_groups(gemm);
  const int64_t rows = session->groups_.rows();
  MOEJIT_TRY_ASSIGN(session->kernel_, plan_of(gemm));
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                    emit_kernel(session->kernel_, device.target()));
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
  MOEJIT_TRY_ASSIGN(session->loaded_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(session->operands_,
                    make_operands(gemm, session->groups_, engine, device, seed));
  MOEJIT_TRY_ASSIGN(session->d_, allocate_named(device, "d", 2 * rows * gemm.n));
  MOEJIT_TRY_ASSIGN(session->elapsed_, allocate_named(device, "elapsed", sizeof(ClockSample)));
  MOEJIT_TRY(session->fill_params());
  return session;
}

Result<std::vector<compiler::KernelSource>> GemmSession::sources(const GemmCase& gemm,
                                                                 const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(std::vector<compiler::KernelSource> sources, operand_sources(gemm, target));
  MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel, plan_of(gemm));
  MOEJIT_TRY_ASSIGN(compiler::KernelSource source, emit_kernel(kernel, target));
  sources.push_back(std::move(source));
  return sources;
}

Result<void> GemmSession::fill_params() {
  const auto& maps = kernel_.tensor_maps;  // of a and b, and of d where tensor copies store it
  MOEJIT_TRY_ASSIGN(params_.a_map, device_.encode_tensor_map(maps[0].box, operands_.a.address()));
  MOEJIT_TRY_ASSIGN(params_.b_map, device_.encode_tensor_map(maps[1].box, operands_.b.address()));
  if (maps.size() > 2) {
    MOEJIT_TRY_ASSIGN(params_.d_map, device_.encode_tensor_map(maps[2].box, d_.address()));
  }
  params_.a_scale_inv = operands_.a_scale_inv.as<const float>();
  params_.b_scale_inv = operands_.b_scale_inv.as<const float>();
  params_.d = d_.as<device::Bf16>();
  params_.counts = operands_.counts.as<const int32_t>();
  params_.offs = operands_.offs.as<const int32_t>();
  params_.elapsed = elapsed_.as<uint64_t>();
  regions_ = {operands_.a.region(),
              operands_.b.region(),
              operands_.a_scale_inv.region(),
              operands_.b_scale_inv.region(),
              operands_.counts.region(),
              operands_.offs.region(),
              d_.region(true),
              elapsed_.region(true)};
  return {};
}

Result<void> GemmSession::launch() {
  const compiler::LaunchShape& shape = kernel_.launch;
  return device_.launch(
      {.kernel = loaded_.get(),
       .ctas = std::min(shape.max_ctas, int64_t{shape.ctas_per_sm} * device_.sm_count()),
       .threads = shape.threads,
       .shared_bytes = shape.shared_bytes,
       .params = std::as_bytes(std::span(&params_, 1)),
       .regions = regions_},
      nullptr);
}

Result<ClockSample> GemmSession::elapsed() {
  MOEJIT_TRY_ASSIGN(const std::vector<uint64_t> values, read<uint64_t>(elapsed_, 0, 2));
  return ClockSample{.cycles = values[0], .nanoseconds = values[1]};
}

}  // namespace moejit::cli
