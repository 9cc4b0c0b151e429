// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/listed_memory.h"

#include "moejit_device/params/multi_cast_transpose_params.h"

#include <span>
#include <variant>

namespace moejit::runtime {
namespace {

using device::CastTransposeTensor;

void add(std::vector<MemoryRegion>& regions, std::string_view name, const void* address,
         int64_t bytes, bool is_written) {
  if (address == nullptr || bytes == 0) return;
  regions.push_back({.name = name, .address = address, .bytes = bytes, .writable = is_written});
}

}  // namespace

std::vector<MemoryRegion> listed_memory(const compiler::KernelPlan& kernel, const void* list) {
  const auto* const spec = std::get_if<compiler::MultiCastTransposeSpec>(&kernel.spec);
  if (spec == nullptr) return {};
  std::vector<MemoryRegion> regions;
  for (const CastTransposeTensor& tensor :
       std::span(static_cast<const CastTransposeTensor*>(list),
                 static_cast<std::size_t>(kernel.bounds.list_length))) {
    const int64_t elements = tensor.rows * tensor.columns;
    add(regions, "input", tensor.input, elements * size_bytes(spec->input), false);
    add(regions, "output", tensor.output, elements, true);
    add(regions, "output_colwise", tensor.output_colwise, elements, true);
    add(regions, "scale", tensor.scale, sizeof(float), false);
    add(regions, "amax", tensor.amax, sizeof(float), true);
    add(regions, "scale_inv", tensor.scale_inv, sizeof(float), true);
  }
  return regions;
}

}  // namespace moejit::runtime
