// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/versioned_kernel.h"

#include "runtime/measure/kernel_timer.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace moejit::measure {
namespace {

using compiler::Choices;

constexpr int64_t kLeastLaunches = 5, kMostLaunches = 100000;
constexpr double kSettled = 0.005;
// Bytes of a result that launches overwrite: a NaN in all formats. Bytes of a result that launches
// add to: a number around 785, in bf16 and fp32.
constexpr std::byte kPoison{0xff}, kOld{0x44};

}  // namespace

Result<VersionComparison> VersionComparison::create(const VersionedKernel& kernel,
                                                    runtime::Engine& engine,
                                                    runtime::Device& device) {
  VersionComparison comparison(kernel, device);
  MOEJIT_TRY_ASSIGN(comparison.counter_, DifferenceCounter::create(engine, device));
  MOEJIT_TRY_ASSIGN(comparison.usual_, kernel.make(kernel.candidates.front()));
  MOEJIT_TRY(comparison.renew_results());
  MOEJIT_TRY(comparison.usual_());
  for (const VersionedKernel::Written& written : kernel.written) {
    MOEJIT_TRY_ASSIGN(auto copy, runtime::DeviceMemory::allocate(device, written.bytes));
    MOEJIT_TRY(device.copy_on_device(copy.address(), written.address, written.bytes, nullptr));
    comparison.wanted_.push_back(std::move(copy));
  }
  MOEJIT_TRY(device.synchronize(nullptr));
  return comparison;
}

Result<void> VersionComparison::renew_results() {
  for (const VersionedKernel::Written& written : kernel_->written)
    MOEJIT_TRY(device_->fill(written.address, written.is_added_to ? kOld : kPoison, written.bytes,
                             nullptr));
  return {};
}

Result<MadeVersion> VersionComparison::make(const Choices& choices) {
  MadeVersion version;
  MOEJIT_TRY_ASSIGN(version.launch, kernel_->make(choices));
  MOEJIT_TRY(renew_results());
  MOEJIT_TRY(version.launch());
  MOEJIT_TRY(device_->synchronize(nullptr));
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const VersionedKernel::Written& written = kernel_->written[i];
    MOEJIT_TRY_ASSIGN(const int64_t words,
                      counter_.count(written.address, wanted_[i].address(), written.bytes));
    version.differing_words += words;
  }
  return version;
}

int64_t launches_for(double seconds, double microseconds) {
  const double count = std::ceil(1e6 * seconds / std::max(microseconds, 1e-3));
  return std::clamp(static_cast<int64_t>(std::min(count, 1e9)), kLeastLaunches, kMostLaunches);
}

Result<std::vector<double>> time_blocks(std::span<const LaunchBlock> blocks,
                                        runtime::Device& device) {
  std::deque<TimeMark> marks;
  MOEJIT_TRY(marks.emplace_back(device).record());
  for (const LaunchBlock& block : blocks) {
    for (int64_t i = 0; i < block.launches; ++i) MOEJIT_TRY((*block.launch)());
    MOEJIT_TRY(marks.emplace_back(device).record());
  }
  std::vector<double> times;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    MOEJIT_TRY_ASSIGN(const double microseconds, marks[i + 1].since(marks[i]));
    times.push_back(std::max(microseconds, 1e-3) / static_cast<double>(blocks[i].launches));
  }
  return times;
}

Result<double> heat(const Launch& launch, runtime::Device& device, double seconds,
                    double most_seconds) {
  constexpr double kPartSeconds = 0.3;
  const auto time = [&](int64_t launches) -> Result<double> {
    const LaunchBlock block{.launch = &launch, .launches = launches};
    MOEJIT_TRY_ASSIGN(const std::vector<double> times, time_blocks(std::span(&block, 1), device));
    return times.front();
  };
  MOEJIT_TRY_ASSIGN(double last, time(1));
  for (double spent = 0.0; spent < most_seconds;) {
    const int64_t launches = launches_for(std::min(kPartSeconds, most_seconds), last);
    MOEJIT_TRY_ASSIGN(const double next, time(launches));
    spent += 1e-6 * next * static_cast<double>(launches);
    const bool is_settled = std::abs(next - last) < kSettled * last;
    last = next;
    if (spent >= seconds && is_settled) break;
  }
  return last;
}

}  // namespace moejit::measure
