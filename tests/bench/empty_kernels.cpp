// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/empty_kernels.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::testing {
namespace {

compiler::KernelSource source_of(std::size_t bytes) {
  return {
      .entry = fmt::format("empty_{}", bytes),
      .text = fmt::format(
          "struct alignas(8) Record {{ unsigned char bytes[{0}]; }};\n"
          "extern \"C\" __global__ void empty_{0}(const __grid_constant__ Record record) {{}}\n",
          bytes),
      .target = {}};
}

}  // namespace

Result<EmptyKernels> EmptyKernels::load(runtime::Engine& engine,
                                        std::span<const std::size_t> sizes) {
  EmptyKernels all;
  MOEJIT_TRY_ASSIGN(all.api_, runtime::driver_api());
  const runtime::DriverApi& api = *all.api_;
  for (const std::size_t bytes : sizes) {
    if (bytes > kMostBytes)
      return fail(Stage::kLoad, ErrorCode::kInternal, fmt::format("a record of {} bytes", bytes));
    const compiler::KernelSource source = source_of(bytes);
    MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    MOEJIT_TRY_DRIVER(api, Stage::kLoad, library_load_data,
                      (&library, binary->bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    MOEJIT_TRY_DRIVER(api, Stage::kLoad, library_get_kernel,
                      (&kernel, library, source.entry.c_str()));
    MOEJIT_TRY_DRIVER(api, Stage::kLoad, kernel_get_function, (&function, kernel));
    all.functions_.push_back(function);
    all.handles_.push_back(reinterpret_cast<CUfunction>(kernel));
  }
  return all;
}

void EmptyKernels::launch(std::span<const CUfunction> kernels) {
  for (const CUfunction kernel : kernels) {
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 128;
    config.blockDimY = config.blockDimZ = 1;
    std::array<void*, 1> arguments = {record_.data()};
    static_cast<void>(api_->launch_kernel_ex(&config, kernel, arguments.data(), nullptr));
  }
}

}  // namespace moejit::testing
