// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_session.h"

#include "runtime/measure/gemm_operands.h"

namespace moejit::measure {
namespace {

using compiler::GradientOutput;

// The values of every byte of a new result.
constexpr std::byte kOldByte{0x44};     // each byte of kOldValue
constexpr std::byte kPoisonByte{0xff};  // makes a NaN, in bf16 and in fp32

bool is_row_grouped(const GemmCase& gemm) { return gemm.operation == GemmOperation::kGroupedGemm; }

int64_t result_bytes(const GemmCase& gemm, const GemmGroups& groups) {
  if (is_row_grouped(gemm)) return 2 * groups.rows() * gemm.n;
  const int64_t element_bytes = gemm.output == GradientOutput::kBf16 ? 2 : 4;
  return element_bytes * gemm.groups * gemm.rows * gemm.n;
}

}  // namespace

Result<std::unique_ptr<GemmSession>> GemmSession::create(const GemmCase& gemm,
                                                         runtime::Engine& engine,
                                                         runtime::Device& device, uint64_t seed) {
  std::unique_ptr<GemmSession> session(new GemmSession(device));
  const GemmGroups groups = make_groups(gemm);
  session->gemm_ = gemm;
  session->groups_ = groups;
  MOEJIT_TRY_ASSIGN(session->operands_,
                    is_row_grouped(gemm)
                        ? make_operands(gemm, groups, engine, device, seed)
                        : make_gradient_operands(gemm, groups, engine, device, seed));
  MOEJIT_TRY_ASSIGN(session->d_, allocate_named(device, "d", result_bytes(gemm, groups)));
  MOEJIT_TRY_ASSIGN(session->elapsed_, allocate_named(device, "elapsed", sizeof(ClockSample)));
  MOEJIT_TRY_ASSIGN(session->run_, session->version({}, engine));
  MOEJIT_TRY(session->reset_result());
  return session;
}

Result<OperationRun> GemmSession::version(const compiler::PlanOptions& options,
                                          runtime::Engine& engine) {
  const GemmOperands& in = operands_;
  return OperationRun::create(
      operation_of(gemm_, groups_.rows()), engine, device_,
      {&in.a, &in.b, &in.a_scale_inv, &in.b_scale_inv, &in.counts, &in.offs, &d_, &elapsed_},
      options);
}

bool GemmSession::is_added_to() const {
  return !is_row_grouped(gemm_) && gemm_.output == GradientOutput::kF32Add;
}

Result<std::vector<compiler::KernelSource>> GemmSession::sources(const GemmCase& gemm,
                                                                 const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(std::vector<compiler::KernelSource> sources,
                    is_row_grouped(gemm) ? operand_sources(gemm, target)
                                         : gradient_operand_sources(gemm, target));
  MOEJIT_TRY_ASSIGN(compiler::KernelSource source,
                    source_of(operation_of(gemm, make_groups(gemm).rows()), target));
  sources.push_back(std::move(source));
  return sources;
}

Result<void> GemmSession::reset_result() {
  return device_.fill(d_.address(), is_added_to() ? kOldByte : kPoisonByte, d_.bytes, nullptr);
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
