// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/tensor_core_sums.h"

#include "runtime/measure/operation_run.h"

#include <array>

namespace moejit::measure {

compiler::KernelSource tensor_core_sums_source(const compiler::Target& target) {
  return measuring_kernel("tensor_core_sums", target);
}

Result<std::vector<float>> tensor_core_sums(const TensorCoreProblems& problems,
                                            runtime::Engine& engine, runtime::Device& device) {
  using device::kSumColumns, device::kSumRows;
  constexpr int64_t kBytesOfA = int64_t{kSumRows} * device::kSumRowBytes;
  const int64_t count = std::ssize(problems.a) / kBytesOfA;
  std::vector<float> sums(static_cast<std::size_t>(count * kSumRows * kSumColumns));
  const auto bytes = static_cast<int64_t>(sums.size() * sizeof(float));
  MOEJIT_TRY_ASSIGN(const auto a, upload_named(device, "a", problems.a));
  MOEJIT_TRY_ASSIGN(const auto b, upload_named(device, "b", problems.b));
  MOEJIT_TRY_ASSIGN(const auto out, allocate_named(device, "sums", bytes));
  const std::array regions = {a.region(), b.region(), out.region(true)};
  MOEJIT_TRY(run_once(
      engine, device, tensor_core_sums_source(device.target()),
      {.threads = device::kSumThreads, .shared_bytes = device::kSumSharedBytes}, count,
      device::TensorCoreSumsParams{a.as<const device::Bytes16>(), b.as<const device::Bytes16>(),
                                   out.as<float>(), problems.formats},
      regions));
  MOEJIT_TRY(device.copy_to_host(sums.data(), out.address(), bytes));
  return sums;
}

}  // namespace moejit::measure
