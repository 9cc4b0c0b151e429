// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/cache_sweep.h"

#include "templates/moejit_device/params/bias_gradient_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <span>
#include <vector>

namespace moejit::measure {
namespace {

using runtime::DeviceMemory;

constexpr int64_t kColumns = 8192;
constexpr int64_t kRowBytes = 2 * kColumns;
constexpr int32_t kThreads = 256;
constexpr int32_t kRowsOfCta = kThreads / 32;  // each warp has one row at a time

// Both bytes of the bf16 number 3. Values and bias hold only this number, so sums are exact.
constexpr std::byte kThree{0x40};
constexpr float kSum = 9.0F * static_cast<float>(kColumns);

compiler::KernelPlan reader() {
  return {.operation = "cache_sweep",
          .spec = compiler::RowDotsSpec{.input = compiler::DType::kBF16,
                                        .local_experts = 1,
                                        .columns = kColumns,
                                        .threads = kThreads}};
}

Result<DeviceMemory> filled(runtime::Device& device, int64_t bytes, std::byte value) {
  MOEJIT_TRY_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(device, bytes));
  MOEJIT_TRY(device.fill(memory.address(), value, bytes, nullptr));
  return memory;
}

}  // namespace

Result<CacheSweep> CacheSweep::create(runtime::Engine& engine, runtime::Device& device,
                                      int64_t bytes) {
  CacheSweep sweep;
  sweep.device_ = &device;
  sweep.rows_ = (bytes + kRowBytes - 1) / kRowBytes;
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source, emit_kernel(reader(), device.target()));
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
  MOEJIT_TRY_ASSIGN(sweep.kernel_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(sweep.values_, filled(device, sweep.rows_ * kRowBytes, kThree));
  MOEJIT_TRY_ASSIGN(sweep.bias_, filled(device, kRowBytes, kThree));
  MOEJIT_TRY_ASSIGN(sweep.sums_, filled(device, 4 * sweep.rows_, std::byte{0}));
  // Holds counts [1] and offs [2] of one group, each in 16 bytes of its own.
  const auto rows = static_cast<int32_t>(sweep.rows_);
  const std::array<int32_t, 8> groups = {rows, 0, 0, 0, 0, rows, 0, 0};
  MOEJIT_TRY_ASSIGN(sweep.groups_, DeviceMemory::allocate(device, sizeof(groups)));
  MOEJIT_TRY(device.copy_to_device(sweep.groups_.address(), groups.data(), sizeof(groups)));
  MOEJIT_TRY(sweep.run());
  MOEJIT_TRY(sweep.check_sums());
  return sweep;
}

Result<void> CacheSweep::run() {
  const auto* groups = static_cast<const int32_t*>(groups_.address());
  const device::BiasGradientParams params{.input = values_.address(),
                                          .bias = static_cast<const device::Bf16*>(bias_.address()),
                                          .counts = groups,
                                          .offs = groups + 4,
                                          .output = static_cast<float*>(sums_.address()),
                                          .rows = rows_};
  const runtime::MemoryRegion regions[] = {{"values", values_.address(), rows_ * kRowBytes},
                                           {"bias", bias_.address(), kRowBytes},
                                           {"groups", groups_.address(), 32},
                                           {"sums", sums_.address(), 4 * rows_, true}};
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = (rows_ + kRowsOfCta - 1) / kRowsOfCta,
                          .threads = kThreads,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = regions},
                         nullptr);
}

Result<void> CacheSweep::check_sums() {
  std::vector<float> sums(static_cast<size_t>(rows_));
  MOEJIT_TRY(device_->copy_to_host(sums.data(), sums_.address(), 4 * rows_));
  const auto wrong = std::ranges::find_if(sums, [](float sum) { return sum != kSum; });
  if (wrong == sums.end()) return {};
  return fail(Stage::kLaunch, ErrorCode::kInternal,
              fmt::format("the sweep that empties caches did not read row {} of {}: its sum is {}, "
                          "wanted {}",
                          wrong - sums.begin(), rows_, *wrong, kSum));
}

}  // namespace moejit::measure
