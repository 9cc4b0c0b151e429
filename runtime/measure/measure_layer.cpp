// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/measure_layer.h"

#include "runtime/measure/kernel_timer.h"

#include <algorithm>

namespace moejit::measure {
namespace {

using compiler::GradientMode;
using compiler::Phase;
using runtime::TensorRef;

std::span<const TensorRef> tensors_of(const LayerCall& call, Phase phase) {
  return call.tensors[static_cast<size_t>(phase)];
}

// Returns the address of a tensor of any phase, or null.
void* address_of(const LayerCall& call, std::string_view name) {
  for (const std::span<const TensorRef> tensors : call.tensors) {
    const auto found = std::ranges::find(tensors, name, &TensorRef::name);
    if (found != tensors.end()) return found->data;
  }
  return nullptr;
}

// Returns the sample that the kernel's last launch wrote; waits for it.
Result<ClockSample> read_elapsed(const LayerCall& call, const compiler::KernelPlan& kernel) {
  const auto argument =
      std::ranges::find(kernel.arguments, "elapsed", &compiler::KernelArgument::role);
  ClockSample sample;
  MOEJIT_TRY(call.device.synchronize(nullptr));
  MOEJIT_TRY(call.device.copy_to_host(&sample, address_of(call, argument->tensor), sizeof(sample)));
  return sample;
}

Result<void> clear_status(const LayerCall& call) {
  void* const status = address_of(call, "status");
  if (status == nullptr) return {};
  return call.device.fill(status, std::byte{0}, sizeof(uint32_t), nullptr);
}

Result<void> forward(const LayerCall& call, runtime::LaunchObserver* observer = nullptr) {
  MOEJIT_TRY(clear_status(call));
  return call.layer.forward(tensors_of(call, Phase::kForward), call.memory, nullptr, observer);
}

Result<void> backward(const LayerCall& call, GradientMode mode,
                      runtime::LaunchObserver* observer = nullptr) {
  return call.layer.backward(tensors_of(call, Phase::kBackward), mode, call.memory, nullptr,
                             observer);
}

// Finds the scales of the next step, which recipes without a history do not have.
Result<void> update_scales(const LayerCall& call, compiler::Pass pass,
                           runtime::LaunchObserver* observer = nullptr) {
  const Phase phase =
      pass == compiler::Pass::kBackward ? Phase::kBackwardScales : Phase::kForwardScales;
  return call.layer.update_scales(pass, tensors_of(call, phase), nullptr, observer);
}

// Launches every kernel of the plan, at least once.
Result<void> run_all(const LayerCall& call, runtime::LaunchObserver* observer = nullptr) {
  MOEJIT_TRY(call.layer.update_weights(tensors_of(call, Phase::kWeights), nullptr, observer));
  MOEJIT_TRY(forward(call, observer));
  MOEJIT_TRY(update_scales(call, compiler::Pass::kForward, observer));
  const compiler::Layer& layer = call.layer.plan().layer;
  if (!has_backward(layer)) return {};
  MOEJIT_TRY(backward(call, GradientMode::kOverwrite, observer));
  if (adds_gradients(layer)) MOEJIT_TRY(backward(call, GradientMode::kAdd, observer));
  return update_scales(call, compiler::Pass::kBackward, observer);
}

// Empties the caches before each kernel, and runs a clock probe after each kernel that does not
// count its clock itself. The sweep also keeps the device busy until the host has queued mark,
// kernel and mark. So no launch latency is measured.
class CoolTimer final : public runtime::LaunchObserver {
 public:
  CoolTimer(const LayerCall& call, CacheSweep& sweep, ClockProbe& probe)
      : call_(call),
        sweep_(sweep),
        probe_(probe),
        timer_(call.device),
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
        MOEJIT_TRY_ASSIGN(clock, read_elapsed(call_, kernels()[kernel]));
      } else {
        clock = *next_probed++;
      }
      launches_[kernel].add(microseconds, clock);
    }
    return {};
  }
  std::vector<CoolRun> medians() const {
    std::vector<CoolRun> runs;
    for (const CoolLaunches& launches : launches_) runs.push_back(launches.medians());
    return runs;
  }

 private:
  const std::vector<compiler::KernelPlan>& kernels() const { return call_.layer.plan().kernels; }

  const LayerCall& call_;
  CacheSweep& sweep_;
  ClockProbe& probe_;
  KernelTimer timer_;
  std::vector<CoolLaunches> launches_;
};

}  // namespace

bool tells_clock(const compiler::KernelPlan& kernel) {
  return std::ranges::find(kernel.arguments, "elapsed", &compiler::KernelArgument::role) !=
         kernel.arguments.end();
}

Result<std::vector<CoolRun>> measure_cool(const LayerCall& call, runtime::Engine& engine,
                                          ClockProbe& probe, int32_t repeat) {
  MOEJIT_TRY_ASSIGN(CacheSweep sweep, CacheSweep::create(engine, call.device));
  for (int32_t i = 0; i < kWarmUps; ++i) MOEJIT_TRY(run_all(call));
  CoolTimer timer(call, sweep, probe);
  for (int32_t i = 0; i < repeat; ++i) {
    MOEJIT_TRY(run_all(call, &timer));
    MOEJIT_TRY(timer.add_pass());
  }
  return timer.medians();
}

Result<std::vector<HotRun>> measure_hot(const LayerCall& call, ClockProbe& probe, double seconds,
                                        GpuMonitor* monitor) {
  MOEJIT_TRY(clear_status(call));
  const std::vector<compiler::KernelPlan>& kernels = call.layer.plan().kernels;
  std::vector<HotRun> runs;
  // Kernels run in the order of the plan, so that each finds what the kernel before it left.
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::span<const TensorRef> tensors = tensors_of(call, kernels[i].phase);
    const auto launch = [&] { return call.layer.launch_kernel(i, tensors, call.memory, nullptr); };
    const bool is_told = tells_clock(kernels[i]);
    MOEJIT_TRY_ASSIGN(HotRun run,
                      run_hot(launch, call.device, is_told ? nullptr : &probe, seconds, monitor));
    if (is_told) {
      MOEJIT_TRY_ASSIGN(const ClockSample clock, read_elapsed(call, kernels[i]));
      run.megahertz = clock.megahertz();
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<HotRun> measure_forward(const LayerCall& call, ClockProbe& probe, double seconds,
                               GpuMonitor* monitor) {
  return run_hot([&] { return forward(call); }, call.device, &probe, seconds, monitor);
}

Result<void> run_step(const LayerCall& call) {
  MOEJIT_TRY(forward(call));
  MOEJIT_TRY(update_scales(call, compiler::Pass::kForward));
  const compiler::Layer& layer = call.layer.plan().layer;
  if (!has_backward(layer)) return {};
  MOEJIT_TRY(backward(call, adds_gradients(layer) ? GradientMode::kAdd : GradientMode::kOverwrite));
  return update_scales(call, compiler::Pass::kBackward);
}

Result<HotRun> measure_step(const LayerCall& call, ClockProbe& probe, double seconds,
                            GpuMonitor* monitor) {
  return run_hot([&] { return run_step(call); }, call.device, &probe, seconds, monitor);
}

}  // namespace moejit::measure
