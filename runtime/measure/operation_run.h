// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "compiler/operation.h"
#include "runtime/device_memory.h"
#include "runtime/engine.h"
#include "runtime/prepared_plan.h"
#include "templates/moejit_device/params/measure_params.h"

#include <cstdint>
#include <fmt/core.h>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::measure {

// Returns the source of the kernel whose whole text is templates/moejit_device/measure/<name>.cuh.
inline compiler::KernelSource measuring_kernel(std::string_view name,
                                               const compiler::Target& target) {
  return {.entry = fmt::format("moejit_{}", name),
          .text = fmt::format("#include \"moejit_device/measure/{}.cuh\"\n", name),
          .target = target};
}

// Compiles and runs one kernel and waits for its end, so its inputs may be freed afterwards.
template <typename Params>
Result<void> run_once(runtime::Engine& engine, runtime::Device& device,
                      const compiler::KernelSource& source, const compiler::LaunchShape& shape,
                      int64_t ctas, const Params& params,
                      std::span<const runtime::MemoryRegion> regions) {
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
  MOEJIT_TRY_ASSIGN(const auto loaded, device.load(*binary));
  MOEJIT_TRY(device.launch({.kernel = loaded.get(),
                            .ctas = ctas,
                            .threads = shape.threads,
                            .shared_bytes = shape.shared_bytes,
                            .params = std::as_bytes(std::span(&params, 1)),
                            .regions = regions},
                           nullptr));
  return device.synchronize(nullptr);
}

// Runs a measuring_kernel() as run_once() does, in CTAs of kMeasureThreads, with a warp for each
// row.
template <typename Params>
Result<void> run_on_rows(runtime::Engine& engine, runtime::Device& device, std::string_view name,
                         int64_t rows, const Params& params,
                         std::span<const runtime::MemoryRegion> regions) {
  constexpr int32_t kThreads = device::kMeasureThreads;
  constexpr int32_t kRowsOfCta = kThreads / 32;
  return run_once(engine, device, measuring_kernel(name, device.target()), {.threads = kThreads},
                  (rows + kRowsOfCta - 1) / kRowsOfCta, params, regions);
}

// Runs an operation on tensors in device memory, each as large as its bound, and waits for its end.
// Memory in `tensors` has the name of the operation's tensor that it holds. Errors: of the planner,
// the compiler, the cache, the device.
Result<void> run_operation(const compiler::OperationDescription& operation, runtime::Engine& engine,
                           runtime::Device& device,
                           std::initializer_list<const runtime::NamedMemory*> tensors);

// Returns the source of an operation's kernel.
Result<compiler::KernelSource> source_of(const compiler::OperationDescription& operation,
                                         const compiler::Target& target);

}  // namespace moejit::measure
