// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/checkpoint/four_bit_format.h"
#include "runtime/reference/packed_weights.h"
#include "templates/moejit_device/params/status_bits.h"

namespace moejit::check {
namespace {

void check_status(const KernelTensors& tensors, bool is_bad, CheckList& list) {
  if (tensors.has("status"))
    list.status(tensors, device::kStatusBadScale, is_bad ? device::kStatusBadScale : 0);
}

void check_four_bit(const compiler::WeightPackSpec& spec, reference::FourBitFormat format,
                    const KernelTensors& tensors, CheckList& list) {
  reference::FourBitWeights weights{.format = format,
                                    .experts = tensors.at("input").shape.front(),
                                    .rows = tensors.at("input").shape[1],
                                    .cols = spec.columns,
                                    .sections = spec.sections,
                                    .is_interleaved = spec.is_interleaved,
                                    .codes = tensors.view<uint8_t>("input"),
                                    .scales = {},
                                    .row_scales = {}};
  if (format == reference::FourBitFormat::kInt4) {
    if (!tensors.has("input_zero")) return;
    weights.row_scales = tensors.view<float>("input_scale_inv");
    weights.zeros = tensors.view<uint8_t>("input_zero");
  } else {
    weights.scales = tensors.view<uint8_t>("input_scale_inv");
  }
  const reference::PackedBf16Weights wanted = reference::pack_four_bit(weights);
  list.bytes(tensors, "output", wanted.tiles);
  check_status(tensors, wanted.is_bad, list);
}

}  // namespace

void check_kernel(const compiler::WeightPackSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input") || !tensors.has("input_scale_inv")) return;
  if (const auto format = checkpoint::four_bit_format(spec.format))
    return check_four_bit(spec, *format, tensors, list);
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
  check_status(tensors, wanted.bad_group.has_value(), list);
}

}  // namespace moejit::check
