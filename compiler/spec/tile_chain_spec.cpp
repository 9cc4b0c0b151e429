// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/tile_chain_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const TileChainSpec& s) {
  return fmt::format(
      "tile_chain sections={} section_rows={} columns={} tiles_per_scale={} epsilon={:g} "
      "{}{}threads={}",
      s.sections, s.section_rows, s.columns, s.tiles_per_scale, s.epsilon,
      s.writes_colwise ? "writes_colwise=true " : "", s.is_interleaved ? "interleaved=true " : "",
      s.threads);
}

std::string to_string(const MultiCastTransposeSpec& s) {
  return fmt::format("multi_cast_transpose input={} output={} threads={}", to_string(s.input),
                     to_string(s.output), s.threads);
}

}  // namespace moejit::compiler
