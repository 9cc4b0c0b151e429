// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/clock_probe.h"

#include <fmt/core.h>
#include <span>

namespace moejit::cli {
namespace {

// Both readings of the cycles follow a tick of the timer at the same distance, so that the length
// of the timer's steps does not matter.
constexpr const char* kText =
    "// clock_probe: cycles of an SM and nanoseconds of the GPU's timer between two ticks of the "
    "timer\n"
    "#include \"moejit_device/ptx/clock.cuh\"\n"
    "#include \"moejit_device/ptx/memory.cuh\"\n"
    "\n"
    "using namespace moejit::device;\n"
    "\n"
    "constexpr uint64_t kNanoseconds = 10000;  // at least so many between the ticks\n"
    "\n"
    "struct ClockProbeParams {\n"
    "  uint64_t* sample;  // [2]: cycles, nanoseconds\n"
    "};\n"
    "\n"
    "MOEJIT_KERNEL(1, 1, moejit_clock_probe, ClockProbeParams) {\n"
    "  const uint64_t before = ptx::global_nanoseconds();\n"
    "  uint64_t first = before;\n"
    "  while (first == before) first = ptx::global_nanoseconds();\n"
    "  const uint64_t first_cycle = ptx::sm_clock();\n"
    "  uint64_t last = first;\n"
    "  while (last - first < kNanoseconds) last = ptx::global_nanoseconds();\n"
    "  const uint64_t cycles = ptx::sm_clock() - first_cycle;\n"
    "  ptx::store(ptx::global(params.sample), cycles);\n"
    "  ptx::store(ptx::global(params.sample) + 1, last - first);\n"
    "}\n";

// As the text above declares it.
struct ClockProbeParams {
  ClockProbe::Sample* sample;
};

constexpr int64_t kSampleBytes = sizeof(ClockProbe::Sample);

}  // namespace

compiler::KernelSource clock_probe_source(const compiler::Target& target) {
  return {.entry = "moejit_clock_probe", .text = kText, .target = target};
}

Result<ClockProbe> ClockProbe::create(runtime::Engine& engine, runtime::Device& device) {
  ClockProbe probe;
  probe.device_ = &device;
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(clock_probe_source(device.target())));
  MOEJIT_TRY_ASSIGN(probe.kernel_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(probe.samples_, DeviceMemory::allocate(device, kMostSamples * kSampleBytes));
  return probe;
}

Result<void> ClockProbe::run() {
  if (count_ == kMostSamples)
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                fmt::format("more than {} clock probes before their samples were taken", count_));
  Sample* const sample = static_cast<Sample*>(samples_.address()) + count_;
  const ClockProbeParams params{sample};
  const runtime::MemoryRegion region{"sample", sample, kSampleBytes, true};
  ++count_;
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = 1,
                          .threads = 1,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = std::span(&region, 1)},
                         nullptr);
}

Result<std::vector<ClockProbe::Sample>> ClockProbe::take_samples() {
  MOEJIT_TRY(device_->synchronize(nullptr));
  std::vector<Sample> samples(static_cast<size_t>(count_));
  MOEJIT_TRY(device_->copy_to_host(samples.data(), samples_.address(), count_ * kSampleBytes));
  count_ = 0;
  return samples;
}

}  // namespace moejit::cli
