// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/column_blocks.h"

#include "cli/bench/run_once.h"

#include <array>

namespace moejit::cli {
namespace {

constexpr const char* kText =
    "// column_blocks: columns of a matrix in blocks of 128 bytes; a warp for each row\n"
    "#include \"moejit_device/ptx/memory.cuh\"\n"
    "\n"
    "using namespace moejit::device;\n"
    "\n"
    "constexpr int32_t kThreads = 256;\n"
    "\n"
    "struct ColumnBlocksParams {\n"
    "  const uint32_t* matrix;  // [rows, columns] bytes\n"
    "  uint32_t* blocks;        // [columns / 128, rows, 128] bytes\n"
    "  int64_t rows;\n"
    "  int64_t columns;\n"
    "};\n"
    "\n"
    "MOEJIT_KERNEL(kThreads, 4, moejit_column_blocks, ColumnBlocksParams) {\n"
    "  const int64_t row = int64_t{ptx::cta_index()} * (kThreads / 32) + ptx::warp_index();\n"
    "  if (row >= params.rows) return;\n"
    "  const auto from = ptx::global(params.matrix) + row * (params.columns / 4);\n"
    "  const auto to = ptx::global(params.blocks);\n"
    "  for (int64_t block = 0; block < params.columns / 128; ++block) {\n"
    "    ptx::store(to + ((block * params.rows + row) * 32 + ptx::lane_index()),\n"
    "               ptx::load(from + (block * 32 + ptx::lane_index())));\n"
    "  }\n"
    "}\n";

// As the text above declares it.
struct ColumnBlocksParams {
  const void* matrix;
  void* blocks;
  int64_t rows;
  int64_t columns;
};

}  // namespace

compiler::KernelSource column_blocks_source(const compiler::Target& target) {
  return {.entry = "moejit_column_blocks", .text = kText, .target = target};
}

Result<void> put_in_column_blocks(const NamedMemory& matrix, int64_t rows, int64_t columns,
                                  const NamedMemory& blocks, runtime::Engine& engine,
                                  runtime::Device& device) {
  const ColumnBlocksParams params{
      .matrix = matrix.address(), .blocks = blocks.address(), .rows = rows, .columns = columns};
  const std::array regions = {matrix.region(), blocks.region(true)};
  return run_on_rows(engine, device, column_blocks_source(device.target()), rows, params, regions);
}

}  // namespace moejit::cli
