// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_session.h"

#include "runtime/measure/gradient_operands.h"

#include <algorithm>
#include <span>

namespace moejit::measure {
namespace {

using compiler::GradientOutput;
using device::ContractionGroupedGemmParams;
using device::GroupedGemmParams;

// Every byte of a new result.
constexpr std::byte kOldByte{0x44};     // of kOldValue
constexpr std::byte kPoisonByte{0xff};  // of a NaN, in bf16 and in fp32

bool is_row_grouped(const GemmCase& gemm) { return gemm.operation == GemmOperation::kGroupedGemm; }

int64_t result_bytes(const GemmCase& gemm, const GemmGroups& groups) {
  if (is_row_grouped(gemm)) return 2 * groups.rows() * gemm.n;
  const int64_t element_bytes = gemm.output == GradientOutput::kBf16 ? 2 : 4;
  return element_bytes * gemm.groups * gemm.rows * gemm.n;
}

Result<compiler::KernelPlan> plan(const GemmCase& gemm, const GemmGroups& groups) {
  if (is_row_grouped(gemm)) return compiler::plan_grouped_gemm(problem_of(gemm), groups.rows());
  return compiler::plan_contraction_grouped_gemm(gradient_problem_of(gemm), groups.rows());
}

}  // namespace

Result<std::unique_ptr<GemmSession>> GemmSession::create(const GemmCase& gemm,
                                                         runtime::Engine& engine,
                                                         runtime::Device& device, uint64_t seed) {
  std::unique_ptr<GemmSession> session(new GemmSession(device));
  const GemmGroups groups = make_groups(gemm);
  session->gemm_ = gemm;
  session->groups_ = groups;
  MOEJIT_TRY_ASSIGN(session->kernel_, plan(gemm, groups));
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                    emit_kernel(session->kernel_, device.target()));
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
  MOEJIT_TRY_ASSIGN(session->loaded_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(session->operands_,
                    is_row_grouped(gemm)
                        ? make_operands(gemm, groups, engine, device, seed)
                        : make_gradient_operands(gemm, groups, engine, device, seed));
  MOEJIT_TRY_ASSIGN(session->d_, allocate_named(device, "d", result_bytes(gemm, groups)));
  MOEJIT_TRY_ASSIGN(session->elapsed_, allocate_named(device, "elapsed", sizeof(ClockSample)));
  MOEJIT_TRY(is_row_grouped(gemm) ? session->fill_row_grouped_params()
                                  : session->fill_contraction_grouped_params());
  MOEJIT_TRY(session->reset_result());
  return session;
}

Result<std::vector<compiler::KernelSource>> GemmSession::sources(const GemmCase& gemm,
                                                                 const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(std::vector<compiler::KernelSource> sources,
                    is_row_grouped(gemm) ? operand_sources(gemm, target)
                                         : gradient_operand_sources(gemm, target));
  MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel, plan(gemm, make_groups(gemm)));
  MOEJIT_TRY_ASSIGN(compiler::KernelSource source, emit_kernel(kernel, target));
  sources.push_back(std::move(source));
  return sources;
}

// What both kinds of records have.
template <typename Params>
Result<Params> GemmSession::common_params() {
  Params params{};
  const auto& maps = kernel_.tensor_maps;  // of a and b, and of d where tensor copies store it
  MOEJIT_TRY_ASSIGN(params.a_map, device_.encode_tensor_map(maps[0].box, operands_.a.address()));
  MOEJIT_TRY_ASSIGN(params.b_map, device_.encode_tensor_map(maps[1].box, operands_.b.address()));
  if (maps.size() > 2) {
    MOEJIT_TRY_ASSIGN(params.d_map, device_.encode_tensor_map(maps[2].box, d_.address()));
  }
  params.a_scale_inv = operands_.a_scale_inv.as<const float>();
  params.b_scale_inv = operands_.b_scale_inv.as<const float>();
  params.counts = operands_.counts.as<const int32_t>();
  params.offs = operands_.offs.as<const int32_t>();
  params.elapsed = elapsed_.as<uint64_t>();
  regions_ = {operands_.a.region(),
              operands_.b.region(),
              operands_.a_scale_inv.region(),
              operands_.b_scale_inv.region(),
              operands_.counts.region(),
              operands_.offs.region(),
              d_.region(true),
              elapsed_.region(true)};
  return params;
}

Result<void> GemmSession::fill_row_grouped_params() {
  MOEJIT_TRY_ASSIGN(GroupedGemmParams params, common_params<GroupedGemmParams>());
  params.d = d_.as<device::Bf16>();
  params_ = params;
  return {};
}

Result<void> GemmSession::fill_contraction_grouped_params() {
  MOEJIT_TRY_ASSIGN(ContractionGroupedGemmParams params,
                    common_params<ContractionGroupedGemmParams>());
  params.columns = groups_.rows();
  params_ = params;
  return {};
}

Result<void> GemmSession::reset_result() {
  const bool is_added_to = !is_row_grouped(gemm_) && gemm_.output == GradientOutput::kF32Add;
  return device_.fill(d_.address(), is_added_to ? kOldByte : kPoisonByte, d_.bytes, nullptr);
}

Result<void> GemmSession::launch() {
  const compiler::LaunchShape& shape = kernel_.launch;
  const auto params = std::visit(
      [](const auto& record) -> std::span<const std::byte> {
        return std::as_bytes(std::span(&record, 1));
      },
      params_);
  return device_.launch(
      {.kernel = loaded_.get(),
       .ctas = std::min(shape.max_ctas, int64_t{shape.ctas_per_sm} * device_.sm_count()),
       .threads = shape.threads,
       .shared_bytes = shape.shared_bytes,
       .params = params,
       .regions = regions_},
      nullptr);
}

Result<ClockSample> GemmSession::elapsed() {
  MOEJIT_TRY_ASSIGN(const std::vector<uint64_t> values, read<uint64_t>(elapsed_, 0, 2));
  return ClockSample{.cycles = values[0], .nanoseconds = values[1]};
}

Result<CoolRun> measure_cool(GemmSession& session, CacheSweep& sweep, runtime::Device& device,
                             int32_t repeat) {
  return run_cool([&] { return session.launch(); }, [&] { return session.elapsed(); }, sweep,
                  device, repeat);
}

Result<HotRun> measure_hot(GemmSession& session, runtime::Device& device, double seconds,
                           GpuMonitor* monitor) {
  MOEJIT_TRY_ASSIGN(HotRun run,
                    run_hot([&] { return session.launch(); }, device, nullptr, seconds, monitor));
  MOEJIT_TRY_ASSIGN(const ClockSample clock, session.elapsed());
  run.megahertz = clock.megahertz();
  return run;
}

}  // namespace moejit::measure
