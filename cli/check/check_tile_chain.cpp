// SPDX-License-Identifier: Apache-2.0
#include "cli/check/kernel_checks.h"
#include "runtime/reference/gate_up_layout.h"

#include <algorithm>

namespace moejit::cli {
namespace {

// Returns the rows with each section filled up with zeros to a multiple of 128 columns.
std::vector<uint8_t> fill_up(const std::vector<uint8_t>& rows, int64_t section_columns) {
  const int64_t padded = reference::block_count(section_columns) * reference::kBlock;
  std::vector<uint8_t> all;
  for (auto section = rows.begin(); section != rows.end(); section += section_columns) {
    all.insert(all.end(), section, section + section_columns);
    all.resize(all.size() + static_cast<size_t>(padded - section_columns));
  }
  return all;
}

}  // namespace

// Checks quantized weights and their transposes. Weights that came quantized have no input; their
// transposes are compared with the codes that came.
void check_kernel(const compiler::TileChainSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (tensors.has("input")) {
    const HostTensor& input = tensors.at("input");
    std::vector<uint16_t> rows = copy_elements<uint16_t>(input);
    if (spec.is_interleaved)
      rows = reference::gate_first<uint16_t>(rows, spec.section_rows, spec.columns);
    const reference::QuantizedWeights wanted = reference::quantize_128x128(
        rows, input.shape[0], input.shape[1], input.shape[2], spec.sections, spec.tiles_per_scale);
    list.codes(tensors, "output", wanted.q);
    list.floats(tensors, "output_scale_inv", wanted.scale_inv);
  }
  if (!tensors.has("output_colwise")) return;
  const reference::ColwiseWeights wanted =
      reference::transpose(tensors.weights("output", spec.sections));
  list.codes(tensors, "output_colwise",
             spec.sections > 1 ? fill_up(wanted.q, spec.section_rows) : wanted.q);
  list.floats(tensors, "output_colwise_scale_inv", wanted.scale_inv);
}

}  // namespace moejit::cli
