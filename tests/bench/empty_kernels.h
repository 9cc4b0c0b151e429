// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/driver_api.h"
#include "runtime/engine.h"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace moejit::testing {

// Kernels that do nothing, with parameter records of the sizes of others: what the driver alone
// takes to launch these.
class EmptyKernels {
 public:
  // Compiles and loads one kernel for each size, in bytes, in the thread's context.
  static Result<EmptyKernels> load(runtime::Engine& engine, std::span<const std::size_t> sizes);

  // Launch all of them one after the other on the default stream, by the functions of the context
  // or by the handles of the library.
  void launch_functions() { launch(functions_); }
  void launch_handles() { launch(handles_); }

 private:
  static constexpr std::size_t kMostBytes = 4096;
  void launch(std::span<const CUfunction> kernels);

  const runtime::DriverApi* api_ = nullptr;
  std::vector<CUfunction> functions_, handles_;
  alignas(64) std::array<std::byte, kMostBytes> record_{};
};

}  // namespace moejit::testing
