// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"

#include "cli/bench/cache_sweep.h"
#include "cli/bench/median.h"
#include "cli/execution/kernel_timer.h"
#include "cli/execution/time_mark.h"

#include <algorithm>

namespace moejit::cli {
namespace {

using compiler::Plan;

constexpr int64_t kCopyBytes = int64_t{512} << 20;
constexpr int32_t kWarmUps = 3;

// The output in which a kernel tells its clock, or null.
const compiler::TensorPlan* elapsed_tensor(const Plan& plan, size_t kernel) {
  for (const compiler::KernelArgument& argument : plan.kernels[kernel].arguments)
    if (argument.role == "elapsed") return find_tensor(plan, argument.tensor);
  return nullptr;
}

// What the kernel's last launch told; waits for it.
Result<ClockSample> read_elapsed(LayerSession& session, size_t kernel) {
  MOEJIT_TRY_ASSIGN(const HostTensor tensor, session.read(*elapsed_tensor(session.plan(), kernel)));
  const std::span<const uint64_t> values = elements<uint64_t>(tensor);
  return ClockSample{.cycles = values[0], .nanoseconds = values[1]};
}

// Empties the caches before each kernel and asks for the clock behind those that do not tell it.
// The sweep also keeps the device busy until the host has queued mark, kernel and mark, so that no
// launch latency is measured.
class CoolTimer final : public runtime::LaunchObserver {
 public:
  CoolTimer(LayerSession& session, runtime::Device& device, CacheSweep& sweep, ClockProbe& probe)
      : session_(session), sweep_(sweep), probe_(probe), timer_(device) {}

  Result<void> before(size_t kernel_index) override {
    MOEJIT_TRY(sweep_.run());
    return timer_.before(kernel_index);
  }
  Result<void> after(size_t kernel_index) override {
    MOEJIT_TRY(timer_.after(kernel_index));
    return tells_clock(session_.plan().kernels[kernel_index]) ? Result<void>{} : probe_.run();
  }

  // Adds the launches of one pass.
  Result<void> add_pass() {
    MOEJIT_TRY_ASSIGN(const auto times, timer_.take_samples());
    MOEJIT_TRY_ASSIGN(const auto probed, probe_.take_samples());
    auto next_probed = probed.begin();
    for (const auto& [kernel, microseconds] : times) {
      ClockSample clock;
      if (tells_clock(session_.plan().kernels[kernel])) {
        MOEJIT_TRY_ASSIGN(clock, read_elapsed(session_, kernel));
      } else {
        clock = *next_probed++;
      }
      if (kernel >= launches_.size()) launches_.resize(kernel + 1);
      launches_[kernel].microseconds.push_back(microseconds);
      launches_[kernel].megahertz.push_back(clock.megahertz());
    }
    return {};
  }
  std::vector<CoolRun> medians(size_t kernels) const {
    std::vector<CoolRun> runs(kernels);
    for (size_t i = 0; i < std::min(kernels, launches_.size()); ++i)
      runs[i] = {median(launches_[i].microseconds), median(launches_[i].megahertz)};
    return runs;
  }

 private:
  struct Launches {
    std::vector<double> microseconds, megahertz;
  };
  LayerSession& session_;
  CacheSweep& sweep_;
  ClockProbe& probe_;
  KernelTimer timer_;
  std::vector<Launches> launches_;
};

// Every kernel of the plan, at least once.
Result<void> run_all(LayerSession& session, runtime::LaunchObserver* observer = nullptr) {
  MOEJIT_TRY(session.update_weights(observer));
  MOEJIT_TRY(session.forward(observer));
  if (!has_backward(session.plan().layer)) return {};
  MOEJIT_TRY(session.backward(compiler::GradientMode::kOverwrite, observer));
  if (!adds_gradients(session.plan().layer)) return {};
  return session.backward(compiler::GradientMode::kAdd, observer);
}

}  // namespace

bool tells_clock(const compiler::KernelPlan& kernel) {
  return std::ranges::find(kernel.arguments, "elapsed", &compiler::KernelArgument::role) !=
         kernel.arguments.end();
}

Result<std::vector<CoolRun>> measure_cool(LayerSession& session, runtime::Engine& engine,
                                          runtime::Device& device, ClockProbe& probe,
                                          int32_t repeat) {
  MOEJIT_TRY_ASSIGN(CacheSweep sweep, CacheSweep::create(engine, device));
  for (int32_t i = 0; i < kWarmUps; ++i) MOEJIT_TRY(run_all(session));
  CoolTimer timer(session, device, sweep, probe);
  for (int32_t i = 0; i < repeat; ++i) {
    MOEJIT_TRY(run_all(session, &timer));
    MOEJIT_TRY(timer.add_pass());
  }
  return timer.medians(session.plan().kernels.size());
}

Result<std::vector<HotRun>> measure_hot(LayerSession& session, runtime::Device& device,
                                        ClockProbe& probe, double seconds, GpuMonitor* monitor) {
  MOEJIT_TRY(session.clear_status());
  std::vector<HotRun> runs;
  // In the order of the plan, so that each kernel finds what the one before it left.
  for (size_t i = 0; i < session.plan().kernels.size(); ++i) {
    const bool is_told = tells_clock(session.plan().kernels[i]);
    MOEJIT_TRY_ASSIGN(HotRun run, run_hot([&] { return session.launch_kernel(i); }, device,
                                          is_told ? nullptr : &probe, seconds, monitor));
    if (is_told) {
      MOEJIT_TRY_ASSIGN(const ClockSample clock, read_elapsed(session, i));
      run.megahertz = clock.megahertz();
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<HotRun> measure_forward(LayerSession& session, runtime::Device& device, ClockProbe& probe,
                               double seconds, GpuMonitor* monitor) {
  return run_hot([&] { return session.forward(); }, device, &probe, seconds, monitor);
}

Result<HotRun> measure_step(LayerSession& session, runtime::Device& device, ClockProbe& probe,
                            double seconds, GpuMonitor* monitor) {
  const auto step = [&]() -> Result<void> {
    MOEJIT_TRY(session.forward());
    return session.backward(adds_gradients(session.plan().layer)
                                ? compiler::GradientMode::kAdd
                                : compiler::GradientMode::kOverwrite);
  };
  return run_hot(step, device, &probe, seconds, monitor);
}

Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat) {
  MOEJIT_TRY_ASSIGN(const DeviceMemory source, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY_ASSIGN(const DeviceMemory destination, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY(device.fill(source.address(), std::byte{0x5A}, kCopyBytes, nullptr));
  std::vector<double> times;
  for (int32_t i = 0; i < kWarmUps + repeat; ++i) {
    TimeMark start(device), end(device);
    MOEJIT_TRY(start.record());
    MOEJIT_TRY(device.copy_on_device(destination.address(), source.address(), kCopyBytes, nullptr));
    MOEJIT_TRY(end.record());
    MOEJIT_TRY_ASSIGN(const double elapsed, end.since(start));
    if (i >= kWarmUps) times.push_back(elapsed);
  }
  return 2.0 * static_cast<double>(kCopyBytes) / (median(std::move(times)) * 1e-6);
}

}  // namespace moejit::cli
