// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/packed_format.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Packs matrices of 4-bit codes [E, sections * section_rows, columns] into tiles that grouped GEMMs
// read (GroupedGemmSpec::b_packed). Tiles restart at each section. A CTA makes a tile.
struct WeightPackSpec {
  int32_t sections = 1;  // 2: gate and up
  int32_t section_rows = 0;
  int32_t columns = 0;          // a multiple of the format's group
  bool is_interleaved = false;  // whether rows of the two sections alternate
  PackedFormat format = PackedFormat::kMxfp4;
  bool operator==(const WeightPackSpec&) const = default;
};

// Returns how many tiles a matrix has.
int64_t tiles_of(const WeightPackSpec& spec);

std::string to_string(const WeightPackSpec& spec);

}  // namespace moejit::compiler
