// SPDX-License-Identifier: Apache-2.0
#include "compiler/param_record.h"

#include "moejit_device/params/bias_gradient_params.h"
#include "moejit_device/params/contraction_grouped_gemm_params.h"
#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/params/grouped_gemm_params.h"
#include "moejit_device/params/multi_cast_transpose_params.h"
#include "moejit_device/params/route_params.h"
#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/params/transpose_params.h"
#include "moejit_device/params/unpermute_dprobs_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

using device::BiasGradientParams;
using device::ContractionGroupedGemmParams;
using device::GatedGradientParams;
using device::GroupedGemmParams;
using device::MultiCastTransposeParams;
using device::RouteParams;
using device::RowChainParams;
using device::TileChainParams;
using device::TransposeParams;
using device::UnpermuteDprobsParams;

using enum Access;

#define MOEJIT_POINTER(record, field, access) \
  RecordTensor { #field, offsetof(record, field), access }

// The pointers of CallTokens, which kernels of backward calls get.
#define MOEJIT_CALL_POINTERS(record)                                                       \
  RecordTensor{"saved_tokens", offsetof(record, call.saved_tokens), kRead}, RecordTensor { \
    "tokens_status", offsetof(record, call.tokens_status), kReadWrite                      \
  }

constexpr std::array kRoutePointers = {
    MOEJIT_POINTER(RouteParams, topk_ids, kRead),
    MOEJIT_POINTER(RouteParams, counts, kWrite),
    MOEJIT_POINTER(RouteParams, offs, kWrite),
    MOEJIT_POINTER(RouteParams, colwise_offs, kWrite),
    MOEJIT_POINTER(RouteParams, row_map, kWrite),
    MOEJIT_POINTER(RouteParams, status, kReadWrite),
    MOEJIT_POINTER(RouteParams, saved_tokens, kWrite),
};

constexpr std::array kRowChainPointers = {
    MOEJIT_POINTER(RowChainParams, input, kRead),
    MOEJIT_POINTER(RowChainParams, input_scale_inv, kRead),
    MOEJIT_POINTER(RowChainParams, gradient, kRead),
    MOEJIT_POINTER(RowChainParams, probs, kRead),
    MOEJIT_POINTER(RowChainParams, row_map, kRead),
    MOEJIT_POINTER(RowChainParams, counts, kRead),
    MOEJIT_POINTER(RowChainParams, offs, kRead),
    MOEJIT_POINTER(RowChainParams, output, kWrite),
    MOEJIT_POINTER(RowChainParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(RowChainParams, output_probs, kWrite),
    MOEJIT_POINTER(RowChainParams, row_tokens, kWrite),
    MOEJIT_POINTER(RowChainParams, output_dprobs, kWrite),
    MOEJIT_POINTER(RowChainParams, kept_output, kWrite),
    MOEJIT_POINTER(RowChainParams, kept_scale_inv, kWrite),
    MOEJIT_POINTER(RowChainParams, dprobs_blocks, kRead),
    MOEJIT_POINTER(RowChainParams, dprobs, kWrite),
    MOEJIT_POINTER(RowChainParams, bias_dprobs, kRead),
    MOEJIT_CALL_POINTERS(RowChainParams),
};

constexpr std::array kTileChainPointers = {
    MOEJIT_POINTER(TileChainParams, input, kRead),
    MOEJIT_POINTER(TileChainParams, output, kWrite),
    MOEJIT_POINTER(TileChainParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(TileChainParams, output_colwise, kWrite),
    MOEJIT_POINTER(TileChainParams, output_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(TileChainParams, skip, kRead),
};

constexpr std::array kGroupedGemmPointers = {
    MOEJIT_POINTER(GroupedGemmParams, a_scale_inv, kRead),
    MOEJIT_POINTER(GroupedGemmParams, b_scale_inv, kRead),
    MOEJIT_POINTER(GroupedGemmParams, probs, kRead),
    MOEJIT_POINTER(GroupedGemmParams, d, kWrite),
    MOEJIT_POINTER(GroupedGemmParams, q, kWrite),
    MOEJIT_POINTER(GroupedGemmParams, q_scale_inv, kWrite),
    MOEJIT_POINTER(GroupedGemmParams, counts, kRead),
    MOEJIT_POINTER(GroupedGemmParams, offs, kRead),
    MOEJIT_POINTER(GroupedGemmParams, elapsed, kWrite),
    MOEJIT_POINTER(GroupedGemmParams, bias, kRead),
    MOEJIT_CALL_POINTERS(GroupedGemmParams),
};

constexpr std::array kContractionGroupedGemmPointers = {
    MOEJIT_POINTER(ContractionGroupedGemmParams, a_scale_inv, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, b_scale_inv, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, counts, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, offs, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, elapsed, kWrite),
    MOEJIT_CALL_POINTERS(ContractionGroupedGemmParams),
};

constexpr std::array kTransposePointers = {
    MOEJIT_POINTER(TransposeParams, input, kRead),
    MOEJIT_POINTER(TransposeParams, input_scale_inv, kRead),
    MOEJIT_POINTER(TransposeParams, row_tokens, kRead),
    MOEJIT_POINTER(TransposeParams, counts, kRead),
    MOEJIT_POINTER(TransposeParams, offs, kRead),
    MOEJIT_POINTER(TransposeParams, output_offs, kRead),
    MOEJIT_POINTER(TransposeParams, output, kWrite),
    MOEJIT_POINTER(TransposeParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(TransposeParams, flushed, kReadWrite),
    MOEJIT_POINTER(TransposeParams, status, kReadWrite),
    MOEJIT_CALL_POINTERS(TransposeParams),
};

constexpr std::array kGatedGradientPointers = {
    MOEJIT_POINTER(GatedGradientParams, input, kRead),
    MOEJIT_POINTER(GatedGradientParams, gradient, kRead),
    MOEJIT_POINTER(GatedGradientParams, probs, kRead),
    MOEJIT_POINTER(GatedGradientParams, counts, kRead),
    MOEJIT_POINTER(GatedGradientParams, offs, kRead),
    MOEJIT_POINTER(GatedGradientParams, output_offs, kRead),
    MOEJIT_POINTER(GatedGradientParams, output, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_dprobs, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_colwise, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(GatedGradientParams, act_colwise, kWrite),
    MOEJIT_POINTER(GatedGradientParams, act_colwise_scale_inv, kWrite),
    MOEJIT_CALL_POINTERS(GatedGradientParams),
};

constexpr std::array kBiasGradientPointers = {
    MOEJIT_POINTER(BiasGradientParams, input, kRead),
    MOEJIT_POINTER(BiasGradientParams, input_scale_inv, kRead),
    MOEJIT_POINTER(BiasGradientParams, probs, kRead),
    MOEJIT_POINTER(BiasGradientParams, bias, kRead),
    MOEJIT_POINTER(BiasGradientParams, counts, kRead),
    MOEJIT_POINTER(BiasGradientParams, offs, kRead),
    MOEJIT_POINTER(BiasGradientParams, output, kWrite),
    MOEJIT_CALL_POINTERS(BiasGradientParams),
};

constexpr std::array kUnpermuteDprobsPointers = {
    MOEJIT_POINTER(UnpermuteDprobsParams, row_map, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, dprobs_blocks, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, bias_dprobs, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, dprobs, kWrite),
    MOEJIT_CALL_POINTERS(UnpermuteDprobsParams),
};

constexpr std::array kMultiCastTransposePointers = {
    MOEJIT_POINTER(MultiCastTransposeParams, tensors, kRead),
    MOEJIT_POINTER(MultiCastTransposeParams, tile_ends, kRead),
    MOEJIT_POINTER(MultiCastTransposeParams, skip, kRead),
};

#undef MOEJIT_POINTER
#undef MOEJIT_CALL_POINTERS
#define MOEJIT_MAP(record, field, access) \
  RecordTensor { #field, offsetof(record, field), access }

constexpr std::array kGroupedGemmMaps = {
    MOEJIT_MAP(GroupedGemmParams, a_map, kRead),
    MOEJIT_MAP(GroupedGemmParams, b_map, kRead),
    MOEJIT_MAP(GroupedGemmParams, d_map, kWrite),
    MOEJIT_MAP(GroupedGemmParams, q_map, kWrite),
};

constexpr std::array kContractionGroupedGemmMaps = {
    MOEJIT_MAP(ContractionGroupedGemmParams, a_map, kRead),
    MOEJIT_MAP(ContractionGroupedGemmParams, b_map, kRead),
    MOEJIT_MAP(ContractionGroupedGemmParams, d_map, kWrite),
};

#undef MOEJIT_MAP
#define MOEJIT_NUMBER(record, field) \
  RecordNumber { #field, offsetof(record, field) }

constexpr std::array kRouteNumbers = {MOEJIT_NUMBER(RouteParams, tokens),
                                      MOEJIT_NUMBER(RouteParams, max_rows)};
constexpr std::array kRowChainNumbers = {MOEJIT_NUMBER(RowChainParams, rows),
                                         MOEJIT_NUMBER(RowChainParams, call.tokens)};
constexpr std::array kTileChainNumbers = {MOEJIT_NUMBER(TileChainParams, matrices)};
constexpr std::array kGroupedGemmNumbers = {MOEJIT_NUMBER(GroupedGemmParams, call.tokens)};
constexpr std::array kContractionGroupedGemmNumbers = {
    MOEJIT_NUMBER(ContractionGroupedGemmParams, columns),
    MOEJIT_NUMBER(ContractionGroupedGemmParams, call.tokens)};
constexpr std::array kTransposeNumbers = {MOEJIT_NUMBER(TransposeParams, rows),
                                          MOEJIT_NUMBER(TransposeParams, output_columns),
                                          MOEJIT_NUMBER(TransposeParams, call.tokens)};
constexpr std::array kGatedGradientNumbers = {MOEJIT_NUMBER(GatedGradientParams, rows),
                                              MOEJIT_NUMBER(GatedGradientParams, output_columns),
                                              MOEJIT_NUMBER(GatedGradientParams, call.tokens)};
constexpr std::array kBiasGradientNumbers = {MOEJIT_NUMBER(BiasGradientParams, rows),
                                             MOEJIT_NUMBER(BiasGradientParams, call.tokens)};
constexpr std::array kUnpermuteDprobsNumbers = {MOEJIT_NUMBER(UnpermuteDprobsParams, rows),
                                                MOEJIT_NUMBER(UnpermuteDprobsParams, call.tokens)};
constexpr std::array kMultiCastTransposeNumbers = {MOEJIT_NUMBER(MultiCastTransposeParams, count)};

#undef MOEJIT_NUMBER

constexpr ParamRecord kRoute{"route", sizeof(RouteParams), kRoutePointers, {}, kRouteNumbers};
constexpr ParamRecord kRowChain{
    "row_chain", sizeof(RowChainParams), kRowChainPointers, {}, kRowChainNumbers};
constexpr ParamRecord kTileChain{
    "tile_chain", sizeof(TileChainParams), kTileChainPointers, {}, kTileChainNumbers};
constexpr ParamRecord kGroupedGemm{"grouped_gemm", sizeof(GroupedGemmParams), kGroupedGemmPointers,
                                   kGroupedGemmMaps, kGroupedGemmNumbers};
constexpr ParamRecord kContractionGroupedGemm{
    "contraction_grouped_gemm", sizeof(ContractionGroupedGemmParams),
    kContractionGroupedGemmPointers, kContractionGroupedGemmMaps, kContractionGroupedGemmNumbers};
constexpr ParamRecord kTranspose{
    "transpose", sizeof(TransposeParams), kTransposePointers, {}, kTransposeNumbers};
constexpr ParamRecord kGatedGradient{"gated_gradient",
                                     sizeof(GatedGradientParams),
                                     kGatedGradientPointers,
                                     {},
                                     kGatedGradientNumbers};
constexpr ParamRecord kBiasGradient{
    "bias_gradient", sizeof(BiasGradientParams), kBiasGradientPointers, {}, kBiasGradientNumbers};
constexpr ParamRecord kUnpermuteDprobs{"unpermute_dprobs",
                                       sizeof(UnpermuteDprobsParams),
                                       kUnpermuteDprobsPointers,
                                       {},
                                       kUnpermuteDprobsNumbers};
constexpr ParamRecord kMultiCastTranspose{"multi_cast_transpose",
                                          sizeof(MultiCastTransposeParams),
                                          kMultiCastTransposePointers,
                                          {},
                                          kMultiCastTransposeNumbers};
constexpr const ParamRecord* kRecords[] = {
    &kRoute,     &kRowChain,      &kTileChain,    &kGroupedGemm,     &kContractionGroupedGemm,
    &kTranspose, &kGatedGradient, &kBiasGradient, &kUnpermuteDprobs, &kMultiCastTranspose};

// Returns whether a record's fields are those of its struct: pointers and numbers of 8 bytes, and
// tensor maps, by which it is aligned then.
constexpr bool is_complete(const ParamRecord& record) {
  const std::size_t maps = record.maps.size() * sizeof(device::TensorMap);
  const std::size_t bytes = maps + 8 * (record.pointers.size() + record.numbers.size());
  const std::size_t alignment = maps > 0 ? alignof(device::TensorMap) : 8;
  return record.bytes == (bytes + alignment - 1) / alignment * alignment;
}
static_assert(std::ranges::all_of(kRecords,
                                  [](const ParamRecord* record) { return is_complete(*record); }));

const ParamRecord& record(const RouteSpec&) { return kRoute; }
const ParamRecord& record(const RowChainSpec&) { return kRowChain; }
const ParamRecord& record(const TileChainSpec&) { return kTileChain; }
const ParamRecord& record(const GroupedGemmSpec&) { return kGroupedGemm; }
const ParamRecord& record(const ContractionGroupedGemmSpec&) { return kContractionGroupedGemm; }
const ParamRecord& record(const TransposeSpec&) { return kTranspose; }
const ParamRecord& record(const GatedGradientSpec&) { return kGatedGradient; }
const ParamRecord& record(const ColumnSumsSpec&) { return kBiasGradient; }
const ParamRecord& record(const RowDotsSpec&) { return kBiasGradient; }
const ParamRecord& record(const UnpermuteDprobsSpec&) { return kUnpermuteDprobs; }
const ParamRecord& record(const MultiCastTransposeSpec&) { return kMultiCastTranspose; }

// Returns whether a kernel adds to what its output holds.
bool adds(const KernelSpec& spec) {
  if (const auto* gemm = std::get_if<ContractionGroupedGemmSpec>(&spec))
    return gemm->output == GradientOutput::kF32Add;
  const auto* sums = std::get_if<ColumnSumsSpec>(&spec);
  return sums != nullptr && sums->adds;
}

Access access_of(std::span<const RecordTensor> tensors, std::string_view role, bool is_added_to) {
  const auto found = std::ranges::find(tensors, role, &RecordTensor::role);
  if (found == tensors.end()) return kRead;  // the plan is refused when it is loaded
  const bool is_sum = role == "d_map" || role == "output";
  return is_added_to && is_sum ? kReadWrite : found->access;
}

}  // namespace

const ParamRecord& param_record(const KernelSpec& spec) {
  return std::visit([](const auto& kind) -> const ParamRecord& { return record(kind); }, spec);
}

std::string param_record_layouts() {
  std::string text;
  for (const ParamRecord* record : kRecords) {
    text += fmt::format("{} {}:", record->name, record->bytes);
    for (const auto tensors : {record->pointers, record->maps})
      for (const RecordTensor& tensor : tensors)
        text += fmt::format(" {}@{}", tensor.role, tensor.offset);
    for (const RecordNumber& number : record->numbers)
      text += fmt::format(" {}@{}", number.role, number.offset);
    text += '\n';
  }
  return text;
}

void set_access(KernelPlan& kernel) {
  const ParamRecord& record = param_record(kernel.spec);
  const bool is_added_to = adds(kernel.spec);
  for (KernelArgument& argument : kernel.arguments)
    argument.access = access_of(record.pointers, argument.role, is_added_to);
  for (TensorMapPlan& map : kernel.tensor_maps)
    map.access = access_of(record.maps, map.role, is_added_to);
}

}  // namespace moejit::compiler
