// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/pad_columns.h"

#include "cli/bench/run_once.h"
#include "templates/moejit_device/params/measure_params.h"

#include <array>

namespace moejit::cli {

compiler::KernelSource pad_columns_source(const compiler::Target& target) {
  return measuring_kernel("pad_columns", target);
}

Result<void> zero_pad_columns(const NamedMemory& matrix, int64_t rows, const GemmGroups& groups,
                              const NamedMemory& counts, const NamedMemory& offs,
                              runtime::Engine& engine, runtime::Device& device) {
  const device::PadColumnsParams params{.matrix = matrix.as<device::Bf16>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .rows = rows,
                                        .groups = static_cast<int64_t>(groups.counts.size())};
  const std::array regions = {matrix.region(true), counts.region(), offs.region()};
  return run_on_rows(engine, device, pad_columns_source(device.target()), rows, params, regions);
}

}  // namespace moejit::cli
