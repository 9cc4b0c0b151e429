// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/random_values.h"

#include "runtime/measure/run_once.h"
#include "templates/moejit_device/params/measure_params.h"

#include <span>

namespace moejit::measure {

compiler::KernelSource random_values_source(compiler::DType dtype, const compiler::Target& target) {
  const bool is_bf16 = dtype == compiler::DType::kBF16;
  return measuring_kernel(is_bf16 ? "random_values_bf16" : "random_values_e4m3", target);
}

Result<RandomValues> RandomValues::create(compiler::DType dtype, runtime::Engine& engine,
                                          runtime::Device& device) {
  RandomValues random;
  random.device_ = &device;
  random.dtype_ = dtype;
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(random_values_source(dtype, device.target())));
  MOEJIT_TRY_ASSIGN(random.kernel_, device.load(*binary));
  return random;
}

Result<void> RandomValues::fill(void* values, int64_t count, uint64_t seed) const {
  constexpr int32_t kThreads = device::kMeasureThreads;
  const int64_t runs = count / device::kRandomRun;
  const device::RandomValuesParams params{values, runs, seed};
  const int64_t bytes = compiler::size_bytes(dtype_) * count;
  const runtime::MemoryRegion region{"values", values, bytes, true};
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = (runs + kThreads - 1) / kThreads,
                          .threads = kThreads,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = std::span(&region, 1)},
                         nullptr);
}

}  // namespace moejit::measure
