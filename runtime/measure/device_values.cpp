// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/device_values.h"

#include "runtime/measure/operation_run.h"
#include "templates/moejit_device/params/measure_params.h"

#include <algorithm>
#include <array>
#include <span>

namespace moejit::measure {

compiler::KernelSource random_values_source(compiler::DType dtype, const compiler::Target& target) {
  const bool is_bf16 = dtype == compiler::DType::kBF16;
  return measuring_kernel(is_bf16 ? "random_values_bf16" : "random_values_e4m3", target);
}

Result<void> fill_random(const runtime::NamedMemory& values, compiler::DType dtype, uint64_t seed,
                         runtime::Engine& engine, runtime::Device& device) {
  constexpr int32_t kThreads = device::kMeasureThreads;
  const int64_t runs = values.bytes / compiler::size_bytes(dtype) / device::kRandomRun;
  const runtime::MemoryRegion region = values.region(true);
  return run_once(engine, device, random_values_source(dtype, device.target()),
                  {.threads = kThreads}, (runs + kThreads - 1) / kThreads,
                  device::RandomValuesParams{values.address(), runs, seed}, {&region, 1});
}

compiler::KernelSource difference_counter_source(const compiler::Target& target) {
  return measuring_kernel("count_differences", target);
}

Result<DifferenceCounter> DifferenceCounter::create(runtime::Engine& engine,
                                                    runtime::Device& device) {
  DifferenceCounter counter;
  counter.device_ = &device;
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(difference_counter_source(device.target())));
  MOEJIT_TRY_ASSIGN(counter.kernel_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(counter.differing_, runtime::DeviceMemory::allocate(device, sizeof(uint64_t)));
  return counter;
}

Result<int64_t> DifferenceCounter::count(const void* a, const void* b, int64_t bytes) {
  constexpr int32_t kThreads = device::kMeasureThreads;
  constexpr int64_t kCtasOfSm = 8;
  auto* const differing = static_cast<uint64_t*>(differing_.address());
  const device::CountDifferencesParams params{
      static_cast<const uint32_t*>(a), static_cast<const uint32_t*>(b), differing, bytes / 4};
  const std::array regions = {
      runtime::MemoryRegion{"a", a, bytes, false}, runtime::MemoryRegion{"b", b, bytes, false},
      runtime::MemoryRegion{"differing", differing, sizeof(uint64_t), true}};
  MOEJIT_TRY(device_->fill(differing, std::byte{0}, sizeof(uint64_t), nullptr));
  MOEJIT_TRY(device_->launch(
      {.kernel = kernel_.get(),
       .ctas = std::min((params.words + kThreads - 1) / kThreads, kCtasOfSm * device_->sm_count()),
       .threads = kThreads,
       .params = std::as_bytes(std::span(&params, 1)),
       .regions = regions},
      nullptr));
  uint64_t counted = 0;
  MOEJIT_TRY(device_->synchronize(nullptr));
  MOEJIT_TRY(device_->copy_to_host(&counted, differing, sizeof(counted)));
  return static_cast<int64_t>(counted);
}

}  // namespace moejit::measure
