// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/column_blocks.h"

#include "cli/bench/run_once.h"
#include "templates/moejit_device/params/measure_params.h"

#include <array>

namespace moejit::cli {

compiler::KernelSource column_blocks_source(const compiler::Target& target) {
  return measuring_kernel("column_blocks", target);
}

Result<void> put_in_column_blocks(const NamedMemory& matrix, int64_t rows, int64_t columns,
                                  const NamedMemory& blocks, runtime::Engine& engine,
                                  runtime::Device& device) {
  const device::ColumnBlocksParams params{.matrix = matrix.as<const uint32_t>(),
                                          .blocks = blocks.as<uint32_t>(),
                                          .rows = rows,
                                          .columns = columns};
  const std::array regions = {matrix.region(), blocks.region(true)};
  return run_on_rows(engine, device, column_blocks_source(device.target()), rows, params, regions);
}

}  // namespace moejit::cli
