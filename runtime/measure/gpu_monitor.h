// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/device.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace moejit::measure {

// Settings that do not change during a run; absent if the library does not tell them.
struct GpuSettings {
  std::optional<std::string> driver_version;  // "580.159.04"
  std::optional<double> power_limit_watts;    // the enforced limit
  std::optional<int32_t> most_megahertz;      // of the SMs
};

// Readings taken while a GPU worked, at intervals of 10 ms.
struct GpuSamples {
  int32_t count = 0;
  std::optional<double> mean_watts, most_watts;
  std::optional<double> mean_megahertz;            // of the SMs, as the driver reports it
  std::optional<int32_t> most_degrees;             // Celsius
  std::vector<std::string_view> throttle_reasons;  // reasons of a lowered clock: "sw_power_cap"
};

// Watches a GPU through NVML, the driver's management library, which is opened at run time and
// need not be there.
class GpuMonitor {
 public:
  // Returns null if the library or the GPU at this place ("00000000:0f:00.0") is not found.
  static std::unique_ptr<GpuMonitor> open(const std::string& pci_bus_id,
                                          const std::string& library = "libnvidia-ml.so.1");
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  GpuSettings settings() const;

  // Starts a thread that takes samples until stop(), at least one.
  void start();
  GpuSamples stop();

 private:
  struct Nvml;
  explicit GpuMonitor(std::unique_ptr<Nvml> nvml);
  void sample_until_stopped();

  std::unique_ptr<Nvml> nvml_;
  std::thread thread_;
  std::atomic<bool> is_stopping_{false};
  struct Sums;
  std::unique_ptr<Sums> sums_;  // belongs to the thread while it runs
};

// Returns the facts by which tuning records know the device's GPU, with its power limit if NVML
// tells it; none for the simulator.
std::optional<compiler::GpuIdentity> gpu_identity(const runtime::Device& device);

}  // namespace moejit::measure
