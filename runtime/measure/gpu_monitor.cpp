// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gpu_monitor.h"

#include "compiler/support/dynamic_library.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

namespace moejit::measure {
namespace {

// NVML's C interface, as far as we use it (nvml.h of CUDA 13). The header need not be there when
// moejit is built; the interface is stable.
using NvmlResult = int;  // 0: success
struct NvmlDevice;
enum : unsigned { kSmClock = 1, kGpuTemperature = 0, kPowerInstant = 186 };

union NvmlValue {
  double floating;
  unsigned natural;
  unsigned long long wide;
};
struct NvmlFieldValue {
  unsigned field = 0;
  unsigned scope = 0;
  long long timestamp = 0;
  long long latency_us = 0;
  int value_type = 0;  // 1: unsigned int
  NvmlResult result = 0;
  NvmlValue value{};
};
constexpr int kUnsignedInt = 1;

struct ThrottleReason {
  unsigned long long bit;
  std::string_view name;
};
constexpr std::array kReasons = {
    ThrottleReason{0x002, "applications_clocks_setting"},
    ThrottleReason{0x004, "sw_power_cap"},
    ThrottleReason{0x008, "hw_slowdown"},
    ThrottleReason{0x010, "sync_boost"},
    ThrottleReason{0x020, "sw_thermal_slowdown"},
    ThrottleReason{0x040, "hw_thermal_slowdown"},
    ThrottleReason{0x080, "hw_power_brake_slowdown"},
    ThrottleReason{0x100, "display_clock_setting"},
};

constexpr auto kInterval = std::chrono::milliseconds(10);

class Mean {
 public:
  void add(std::optional<double> value) {
    if (!value) return;
    sum_ += *value;
    ++count_;
  }
  std::optional<double> value() const {
    return count_ == 0 ? std::nullopt : std::optional(sum_ / count_);
  }

 private:
  double sum_ = 0.0;
  int32_t count_ = 0;
};

template <typename T>
void raise(std::optional<T>& most, std::optional<T> value) {
  if (value && (!most || *value > *most)) most = value;
}

}  // namespace

// Functions that an older library lacks are null.
struct GpuMonitor::Nvml {
  NvmlResult (*shutdown)() = nullptr;
  NvmlResult (*driver_version)(char*, unsigned) = nullptr;
  NvmlResult (*power_limit)(NvmlDevice*, unsigned* milliwatts) = nullptr;
  NvmlResult (*most_clock)(NvmlDevice*, unsigned kind, unsigned* megahertz) = nullptr;
  NvmlResult (*clock)(NvmlDevice*, unsigned kind, unsigned* megahertz) = nullptr;
  NvmlResult (*temperature)(NvmlDevice*, unsigned kind, unsigned* degrees) = nullptr;
  NvmlResult (*field_values)(NvmlDevice*, int count, NvmlFieldValue*) = nullptr;
  NvmlResult (*reasons)(NvmlDevice*, unsigned long long* bits) = nullptr;
  NvmlDevice* device = nullptr;

  // Returns the number that a function writes to its last argument, or none.
  template <typename Value = unsigned, typename Function, typename... Arguments>
  std::optional<Value> ask(Function function, Arguments... arguments) const {
    Value value{};
    if (function == nullptr || function(device, arguments..., &value) != 0) return std::nullopt;
    return value;
  }
  // Returns the power at this moment; nvmlDeviceGetPowerUsage would give the mean over a second.
  std::optional<double> watts() const {
    NvmlFieldValue power{.field = kPowerInstant};
    if (field_values == nullptr || field_values(device, 1, &power) != 0) return std::nullopt;
    if (power.result != 0 || power.value_type != kUnsignedInt) return std::nullopt;
    return 1e-3 * power.value.natural;
  }
};

struct GpuMonitor::Sums {
  int32_t count = 0;
  Mean watts, megahertz;
  std::optional<double> most_watts;
  std::optional<int32_t> most_degrees;
  unsigned long long reasons = 0;

  void add(const Nvml& nvml) {
    ++count;
    const std::optional<double> now = nvml.watts();
    watts.add(now);
    raise(most_watts, now);
    if (const auto clock = nvml.ask(nvml.clock, unsigned{kSmClock})) megahertz.add(*clock);
    if (const auto degrees = nvml.ask(nvml.temperature, unsigned{kGpuTemperature}))
      raise(most_degrees, std::optional(static_cast<int32_t>(*degrees)));
    reasons |= nvml.ask<unsigned long long>(nvml.reasons).value_or(0);
  }
};

GpuMonitor::GpuMonitor(std::unique_ptr<Nvml> nvml)
    : nvml_(std::move(nvml)), sums_(std::make_unique<Sums>()) {}

GpuMonitor::~GpuMonitor() {
  stop();
  if (nvml_->shutdown != nullptr) nvml_->shutdown();
}

std::unique_ptr<GpuMonitor> GpuMonitor::open(const std::string& pci_bus_id,
                                             const std::string& library) {
  const auto opened = DynamicLibrary::open(library);
  if (!opened) return nullptr;
  const auto resolve = [&](const char* name, auto& function) {
    if (function != nullptr) return;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(opened->symbol(name));
  };
  NvmlResult (*init)() = nullptr;
  NvmlResult (*device_by_place)(const char*, NvmlDevice**) = nullptr;
  auto nvml = std::make_unique<Nvml>();
  resolve("nvmlInit_v2", init);
  resolve("nvmlDeviceGetHandleByPciBusId_v2", device_by_place);
  resolve("nvmlShutdown", nvml->shutdown);
  resolve("nvmlSystemGetDriverVersion", nvml->driver_version);
  resolve("nvmlDeviceGetEnforcedPowerLimit", nvml->power_limit);
  resolve("nvmlDeviceGetMaxClockInfo", nvml->most_clock);
  resolve("nvmlDeviceGetClockInfo", nvml->clock);
  resolve("nvmlDeviceGetTemperature", nvml->temperature);
  resolve("nvmlDeviceGetFieldValues", nvml->field_values);
  resolve("nvmlDeviceGetCurrentClocksEventReasons", nvml->reasons);
  resolve("nvmlDeviceGetCurrentClocksThrottleReasons", nvml->reasons);  // its name before 12.2
  if (init == nullptr || device_by_place == nullptr || init() != 0) return nullptr;
  if (device_by_place(pci_bus_id.c_str(), &nvml->device) != 0) nvml->device = nullptr;
  std::unique_ptr<GpuMonitor> monitor(new GpuMonitor(std::move(nvml)));
  return monitor->nvml_->device == nullptr ? nullptr : std::move(monitor);
}

GpuSettings GpuMonitor::settings() const {
  GpuSettings settings;
  std::array<char, 96> version{};
  if (nvml_->driver_version != nullptr &&
      nvml_->driver_version(version.data(), static_cast<unsigned>(version.size())) == 0)
    settings.driver_version = version.data();
  if (const auto milliwatts = nvml_->ask(nvml_->power_limit))
    settings.power_limit_watts = 1e-3 * *milliwatts;
  if (const auto megahertz = nvml_->ask(nvml_->most_clock, unsigned{kSmClock}))
    settings.most_megahertz = static_cast<int32_t>(*megahertz);
  return settings;
}

void GpuMonitor::sample_until_stopped() {
  do {
    sums_->add(*nvml_);
    std::this_thread::sleep_for(kInterval);
  } while (!is_stopping_);
}

void GpuMonitor::start() {
  stop();
  thread_ = std::thread([this] { sample_until_stopped(); });
}

GpuSamples GpuMonitor::stop() {
  if (!thread_.joinable()) return {};
  is_stopping_ = true;
  thread_.join();
  is_stopping_ = false;
  const Sums sums = std::exchange(*sums_, {});
  GpuSamples samples{.count = sums.count,
                     .mean_watts = sums.watts.value(),
                     .most_watts = sums.most_watts,
                     .mean_megahertz = sums.megahertz.value(),
                     .most_degrees = sums.most_degrees,
                     .throttle_reasons = {}};
  for (const ThrottleReason& reason : kReasons)
    if ((sums.reasons & reason.bit) != 0) samples.throttle_reasons.push_back(reason.name);
  return samples;
}

std::optional<compiler::GpuIdentity> gpu_identity(const runtime::Device& device) {
  const runtime::GpuFacts facts = device.gpu_facts();
  std::optional<compiler::GpuIdentity> identity = facts.identity;
  if (!identity) return identity;
  if (const auto monitor = GpuMonitor::open(facts.pci_bus_id))
    if (const auto watts = monitor->settings().power_limit_watts)
      identity->power_limit_watts = std::lround(*watts);
  return identity;
}

}  // namespace moejit::measure
