// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/packed_bf16_weights.h"
#include "runtime/reference/packed_weights.h"
#include "templates/moejit_device/params/status_bits.h"

namespace moejit::check {
namespace {

void check_status(const KernelTensors& tensors, bool is_bad, CheckList& list) {
  if (!tensors.has("status")) return;
  const bool got = (tensors.view<uint32_t>("status").front() & device::kStatusBadScale) != 0;
  list.add(check_number(tensors.name("status"), got ? 1 : 0, is_bad ? 1 : 0));
}

void check_four_bit(const compiler::WeightPackSpec& spec, const KernelTensors& tensors,
                    CheckList& list) {
  const bool is_int4 = spec.format == compiler::PackedFormat::kInt4;
  reference::FourBitWeights weights{
      .format = is_int4 ? reference::FourBitFormat::kInt4 : reference::FourBitFormat::kNvfp4,
      .experts = tensors.at("input").shape.front(),
      .rows = tensors.at("input").shape[1],
      .cols = spec.columns,
      .sections = spec.sections,
      .is_interleaved = spec.is_interleaved,
      .codes = tensors.view<uint8_t>("input"),
      .scales = {},
      .row_scales = {}};
  if (is_int4) {
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
  if (spec.format != compiler::PackedFormat::kMxfp4) return check_four_bit(spec, tensors, list);
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
