// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/measure_trial.h"

#include "runtime/measure/kernel_timer.h"

#include <algorithm>

namespace moejit::trial {

using measure::ClockProbe;
using measure::ClockSample;
using measure::CoolRun;
using measure::GpuMonitor;
using measure::HotRun;

namespace {

auto elapsed_of(const compiler::KernelPlan& kernel) {
  return std::ranges::find(kernel.arguments, "elapsed", &compiler::KernelArgument::role);
}

// Returns the sample that the kernel's last launch wrote; waits for it.
Result<ClockSample> read_elapsed(const Trial& trial, const compiler::KernelPlan& kernel) {
  MOEJIT_TRY_ASSIGN(const auto elapsed, trial.tensors().read(elapsed_of(kernel)->tensor));
  return runtime::elements<ClockSample>(elapsed).front();
}

// Launches every kernel of the plan, at least once.
Result<void> run_all(Trial& trial, runtime::LaunchObserver* observer = nullptr) {
  if (trial.plan().operation) return trial.call("run", observer);
  MOEJIT_TRY(trial.call("update_weights", observer));
  MOEJIT_TRY(trial.call("forward", observer));
  MOEJIT_TRY(trial.call("update_forward_scales", observer));
  const compiler::Layer& layer = *trial.plan().layer;
  if (!has_backward(layer)) return {};
  MOEJIT_TRY(trial.call("backward", observer));
  if (layer.fuse_wgrad_accumulation) MOEJIT_TRY(trial.call("backward+add", observer));
  return trial.call("update_backward_scales", observer);
}

// Queues a forward and, if the layer has one, a backward pass. If the recipe has a history, each is
// followed by the update of its scales.
Result<void> run_step(Trial& trial) {
  MOEJIT_TRY(trial.call("forward"));
  MOEJIT_TRY(trial.call("update_forward_scales"));
  const compiler::Layer& layer = *trial.plan().layer;
  if (!has_backward(layer)) return {};
  MOEJIT_TRY(trial.call(layer.fuse_wgrad_accumulation ? "backward+add" : "backward"));
  return trial.call("update_backward_scales");
}

// Empties the caches before each kernel, and runs a clock probe after each kernel that does not
// count its clock itself. The sweep also keeps the device busy until the host has queued mark,
// kernel and mark. So no launch latency is measured.
class CoolTimer final : public runtime::LaunchObserver {
 public:
  CoolTimer(const Trial& trial, measure::CacheSweep& sweep, ClockProbe& probe)
      : trial_(trial),
        sweep_(sweep),
        probe_(probe),
        timer_(trial.device()),
        launches_(kernels().size()) {}

  Result<void> before(size_t kernel_index) override {
    MOEJIT_TRY(sweep_.run());
    return timer_.before(kernel_index);
  }
  Result<void> after(size_t kernel_index) override {
    MOEJIT_TRY(timer_.after(kernel_index));
    return tells_clock(kernels()[kernel_index]) ? Result<void>{} : probe_.run();
  }

  // Adds the launches of one pass.
  Result<void> add_pass() {
    MOEJIT_TRY_ASSIGN(const auto times, timer_.take_samples());
    MOEJIT_TRY_ASSIGN(const auto probed, probe_.take_samples());
    auto next_probed = probed.begin();
    for (const auto& [kernel, microseconds] : times) {
      ClockSample clock;
      if (tells_clock(kernels()[kernel])) {
        MOEJIT_TRY_ASSIGN(clock, read_elapsed(trial_, kernels()[kernel]));
      } else {
        clock = *next_probed++;
      }
      launches_[kernel].add(microseconds, clock);
    }
    return {};
  }
  std::vector<CoolRun> medians() const {
    std::vector<CoolRun> runs;
    for (const measure::CoolLaunches& launches : launches_) runs.push_back(launches.medians());
    return runs;
  }

 private:
  const std::vector<compiler::KernelPlan>& kernels() const { return trial_.plan().kernels; }

  const Trial& trial_;
  measure::CacheSweep& sweep_;
  ClockProbe& probe_;
  measure::KernelTimer timer_;
  std::vector<measure::CoolLaunches> launches_;
};

}  // namespace

bool tells_clock(const compiler::KernelPlan& kernel) {
  return elapsed_of(kernel) != kernel.arguments.end();
}

Result<std::vector<CoolRun>> measure_cool(Trial& trial, runtime::Engine& engine, ClockProbe& probe,
                                          int32_t repeat) {
  MOEJIT_TRY_ASSIGN(auto sweep, measure::CacheSweep::create(engine, trial.device()));
  for (int32_t i = 0; i < measure::kWarmUps; ++i) MOEJIT_TRY(run_all(trial));
  CoolTimer timer(trial, sweep, probe);
  for (int32_t i = 0; i < repeat; ++i) {
    MOEJIT_TRY(run_all(trial, &timer));
    MOEJIT_TRY(timer.add_pass());
  }
  return timer.medians();
}

Result<std::vector<HotRun>> measure_hot(Trial& trial, ClockProbe& probe, double seconds,
                                        GpuMonitor* monitor) {
  if (void* const status = trial.tensors().address_of("status"))
    MOEJIT_TRY(trial.device().fill(status, std::byte{0}, sizeof(uint32_t), nullptr));
  const std::vector<compiler::KernelPlan>& kernels = trial.plan().kernels;
  std::vector<HotRun> runs;
  // Kernels run in the order of the plan, so that each finds what the kernel before it left.
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto launch = [&] { return trial.launch(i); };
    const bool is_told = tells_clock(kernels[i]);
    MOEJIT_TRY_ASSIGN(HotRun run, measure::run_hot(launch, trial.device(),
                                                   is_told ? nullptr : &probe, seconds, monitor));
    if (is_told) {
      MOEJIT_TRY_ASSIGN(const ClockSample clock, read_elapsed(trial, kernels[i]));
      run.megahertz = clock.megahertz();
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<HotRun> measure_forward(Trial& trial, ClockProbe& probe, double seconds,
                               GpuMonitor* monitor) {
  return measure::run_hot([&] { return trial.call("forward"); }, trial.device(), &probe, seconds,
                          monitor);
}

Result<HotRun> measure_forward_graph(Trial& trial, ClockProbe& probe, double seconds,
                                     GpuMonitor* monitor) {
  constexpr int32_t kPasses = 20;  // in a graph, as a model has layers
  MOEJIT_TRY_ASSIGN(const auto graph, trial.record("forward", kPasses));
  MOEJIT_TRY_ASSIGN(HotRun run, measure::run_hot([&] { return graph->launch(nullptr); },
                                                 trial.device(), &probe, seconds, monitor));
  run.microseconds /= kPasses;
  run.launches *= kPasses;
  return run;
}

Result<HotRun> measure_step(Trial& trial, ClockProbe& probe, double seconds, GpuMonitor* monitor) {
  return measure::run_hot([&] { return run_step(trial); }, trial.device(), &probe, seconds,
                          monitor);
}

}  // namespace moejit::trial
