// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/measure_layer.h"

#include "runtime/measure/kernel_timer.h"

#include <algorithm>

namespace moejit::measure {
namespace {

using runtime::TensorRef;

// Makes a call of the layer.
Result<void> run_call(const LayerCall& call, std::string_view name,
                      runtime::LaunchObserver* observer) {
  MOEJIT_TRY_ASSIGN(const std::size_t index, find_call(call.prepared.plan(), name));
  return call.prepared.call(index, call.tensors[index], call.memory, nullptr, observer);
}

// Returns the address of a tensor of any call, or null.
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
  return run_call(call, "forward", observer);
}

// Launches every kernel of the plan, at least once.
Result<void> run_all(const LayerCall& call, runtime::LaunchObserver* observer = nullptr) {
  if (call.prepared.plan().operation) return run_call(call, "run", observer);
  MOEJIT_TRY(run_call(call, "update_weights", observer));
  MOEJIT_TRY(forward(call, observer));
  MOEJIT_TRY(run_call(call, "update_forward_scales", observer));
  const compiler::Layer& layer = *call.prepared.plan().layer;
  if (!has_backward(layer)) return {};
  MOEJIT_TRY(run_call(call, "backward", observer));
  if (adds_gradients(layer)) MOEJIT_TRY(run_call(call, "backward+add", observer));
  return run_call(call, "update_backward_scales", observer);
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
  const std::vector<compiler::KernelPlan>& kernels() const { return call_.prepared.plan().kernels; }

  const LayerCall& call_;
  CacheSweep& sweep_;
  ClockProbe& probe_;
  KernelTimer timer_;
  std::vector<CoolLaunches> launches_;
};

}  // namespace

Result<void> LayerCall::launch(std::size_t kernel) const {
  const std::size_t call = call_of_kernel(prepared.plan(), kernel);
  return prepared.launch(kernel, tensors[call], memory, nullptr);
}

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
  const std::vector<compiler::KernelPlan>& kernels = call.prepared.plan().kernels;
  std::vector<HotRun> runs;
  // Kernels run in the order of the plan, so that each finds what the kernel before it left.
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto launch = [&] { return call.launch(i); };
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
  MOEJIT_TRY(run_call(call, "update_forward_scales", nullptr));
  const compiler::Layer& layer = *call.prepared.plan().layer;
  if (!has_backward(layer)) return {};
  MOEJIT_TRY(run_call(call, adds_gradients(layer) ? "backward+add" : "backward", nullptr));
  return run_call(call, "update_backward_scales", nullptr);
}

Result<HotRun> measure_step(const LayerCall& call, ClockProbe& probe, double seconds,
                            GpuMonitor* monitor) {
  return run_hot([&] { return run_step(call); }, call.device, &probe, seconds, monitor);
}

}  // namespace moejit::measure
