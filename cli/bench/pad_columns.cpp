// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/pad_columns.h"

#include "cli/bench/run_once.h"

#include <array>

namespace moejit::cli {
namespace {

constexpr const char* kText =
    "// pad_columns: zeros in the columns that fill up groups; a warp for each row\n"
    "#include \"moejit_device/ptx/memory.cuh\"\n"
    "\n"
    "using namespace moejit::device;\n"
    "\n"
    "constexpr int32_t kThreads = 256;\n"
    "\n"
    "struct PadColumnsParams {\n"
    "  Bf16* matrix;           // [rows, offs[groups]]\n"
    "  const int32_t* counts;  // [groups]\n"
    "  const int32_t* offs;    // [groups + 1]\n"
    "  int64_t rows;\n"
    "  int64_t groups;\n"
    "};\n"
    "\n"
    "MOEJIT_KERNEL(kThreads, 4, moejit_pad_columns, PadColumnsParams) {\n"
    "  const int64_t row = int64_t{ptx::cta_index()} * (kThreads / 32) + ptx::warp_index();\n"
    "  if (row >= params.rows) return;\n"
    "  const auto counts = ptx::global(params.counts);\n"
    "  const auto offs = ptx::global(params.offs);\n"
    "  const auto columns = ptx::global(params.matrix) + row * ptx::load(offs + params.groups);\n"
    "  for (int64_t group = 0; group < params.groups; ++group) {\n"
    "    const int32_t first = ptx::load(offs + group) + ptx::load(counts + group);\n"
    "    const int32_t end = ptx::load(offs + (group + 1));\n"
    "    for (int32_t column = first + ptx::lane_index(); column < end; column += 32) {\n"
    "      ptx::store(columns + column, Bf16{});\n"
    "    }\n"
    "  }\n"
    "}\n";

// As the text above declares it.
struct PadColumnsParams {
  void* matrix;
  const int32_t* counts;
  const int32_t* offs;
  int64_t rows;
  int64_t groups;
};

}  // namespace

compiler::KernelSource pad_columns_source(const compiler::Target& target) {
  return {.entry = "moejit_pad_columns", .text = kText, .target = target};
}

Result<void> zero_pad_columns(const NamedMemory& matrix, int64_t rows, const GemmGroups& groups,
                              const NamedMemory& counts, const NamedMemory& offs,
                              runtime::Engine& engine, runtime::Device& device) {
  const PadColumnsParams params{.matrix = matrix.address(),
                                .counts = counts.as<const int32_t>(),
                                .offs = offs.as<const int32_t>(),
                                .rows = rows,
                                .groups = static_cast<int64_t>(groups.counts.size())};
  const std::array regions = {matrix.region(true), counts.region(), offs.region()};
  return run_on_rows(engine, device, pad_columns_source(device.target()), rows, params, regions);
}

}  // namespace moejit::cli
