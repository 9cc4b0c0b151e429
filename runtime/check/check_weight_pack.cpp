// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/packed_weights.h"
#include "templates/moejit_device/params/status_bits.h"

namespace moejit::check {

void check_kernel(const compiler::WeightPackSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input") || !tensors.has("input_scale_inv")) return;
  const reference::PackedWeights wanted =
      reference::pack_weights({.experts = tensors.at("input").shape.front(),
                               .rows = tensors.at("input").shape[1],
                               .cols = spec.columns,
                               .sections = spec.sections,
                               .is_interleaved = spec.is_interleaved,
                               .codes = tensors.view<uint8_t>("input"),
                               .scales = tensors.view<uint8_t>("input_scale_inv")});
  list.bytes(tensors, "output", wanted.tiles);
  list.floats(tensors, "output_scale_inv", wanted.scale_inv);
  if (!tensors.has("status")) return;
  const bool got = (tensors.view<uint32_t>("status").front() & device::kStatusBadScale) != 0;
  list.add(check_number(tensors.name("status"), got ? 1 : 0, wanted.bad_group ? 1 : 0));
}

}  // namespace moejit::check
