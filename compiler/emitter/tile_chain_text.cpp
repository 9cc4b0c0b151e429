// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const TileChainSpec& spec) {
  KernelText text{
      .types = "bf16_e4m3",
      .tile = "128x128",
      .summary = fmt::format(
          "bf16 matrices [{}, {}] to e4m3, one power-of-two scale for each 128x{} tile{}",
          int64_t{spec.sections} * spec.section_rows, spec.columns, 128 * spec.tiles_per_scale,
          spec.writes_colwise ? ", and transposed" : ""),
      .includes = {spec.writes_colwise ? "stage/colwise_tile_chain.cuh" : "stage/tile_chain.cuh"},
      .params = "TileChainParams",
      .constants =
          {
              integer_constant("kSections", spec.sections, "stacked parts, tiles restart at each"),
              integer_constant("kSectionRows", spec.section_rows, "rows of each"),
              integer_constant("kColumns", spec.columns, "of a matrix"),
              integer_constant("kTilesPerScale", spec.tiles_per_scale,
                               "neighbouring tiles that share a scale"),
              float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"),
              integer_constant("kThreads", spec.threads, "per CTA"),
          },
      .types_used = {{"Kernel",
                      spec.writes_colwise ? "ColwiseTileChain" : "TileChain",
                      {"kSections", "kSectionRows", "kColumns", "kTilesPerScale", "kEpsilonBits",
                       "kThreads"}}},
  };
  if (spec.is_interleaved) {
    text.constants.push_back(
        bool_constant("kInterleaved", true, "rows of the parts alternate in the input"));
    text.types_used.back().arguments.emplace_back("kInterleaved");
  }
  return text;
}

}  // namespace moejit::compiler
