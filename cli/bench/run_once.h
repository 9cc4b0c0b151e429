// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "runtime/engine.h"

#include <cstdint>
#include <span>

namespace moejit::cli {

// Compiles and runs one kernel to its end, after which its inputs may go.
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

// The same for one that the planner describes.
template <typename Params>
Result<void> run_once(runtime::Engine& engine, runtime::Device& device,
                      const compiler::KernelPlan& kernel, int64_t ctas, const Params& params,
                      std::span<const runtime::MemoryRegion> regions) {
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source, emit_kernel(kernel, device.target()));
  return run_once(engine, device, source, compiler::launch_shape(kernel.spec), ctas, params,
                  regions);
}

// The same for one whose CTAs are eight warps with a row each.
template <typename Params>
Result<void> run_on_rows(runtime::Engine& engine, runtime::Device& device,
                         const compiler::KernelSource& source, int64_t rows, const Params& params,
                         std::span<const runtime::MemoryRegion> regions) {
  return run_once(engine, device, source, {.threads = 256}, (rows + 7) / 8, params, regions);
}

}  // namespace moejit::cli
