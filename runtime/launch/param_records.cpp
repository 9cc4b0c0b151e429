// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/param_records.h"

#include "compiler/launch.h"
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

#include <array>
#include <variant>

namespace moejit::runtime {
namespace {

using compiler::CallDim;
using compiler::Layer;
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

constexpr bool kRead = false, kWritten = true;

#define MOEJIT_POINTER(record, field, access) \
  RecordPointer { #field, offsetof(record, field), access }

// The pointers of CallTokens, which kernels of backward calls get.
#define MOEJIT_CALL_POINTERS(record)                                                         \
  RecordPointer{"saved_tokens", offsetof(record, call.saved_tokens), kRead}, RecordPointer { \
    "tokens_status", offsetof(record, call.tokens_status), kWritten                          \
  }

constexpr std::array kRoutePointers = {
    MOEJIT_POINTER(RouteParams, topk_ids, kRead),
    MOEJIT_POINTER(RouteParams, counts, kWritten),
    MOEJIT_POINTER(RouteParams, offs, kWritten),
    MOEJIT_POINTER(RouteParams, colwise_offs, kWritten),
    MOEJIT_POINTER(RouteParams, row_map, kWritten),
    MOEJIT_POINTER(RouteParams, status, kWritten),
    MOEJIT_POINTER(RouteParams, saved_tokens, kWritten),
};

constexpr std::array kRowChainPointers = {
    MOEJIT_POINTER(RowChainParams, input, kRead),
    MOEJIT_POINTER(RowChainParams, input_scale_inv, kRead),
    MOEJIT_POINTER(RowChainParams, gradient, kRead),
    MOEJIT_POINTER(RowChainParams, probs, kRead),
    MOEJIT_POINTER(RowChainParams, row_map, kRead),
    MOEJIT_POINTER(RowChainParams, counts, kRead),
    MOEJIT_POINTER(RowChainParams, offs, kRead),
    MOEJIT_POINTER(RowChainParams, output, kWritten),
    MOEJIT_POINTER(RowChainParams, output_scale_inv, kWritten),
    MOEJIT_POINTER(RowChainParams, output_probs, kWritten),
    MOEJIT_POINTER(RowChainParams, row_tokens, kWritten),
    MOEJIT_POINTER(RowChainParams, output_dprobs, kWritten),
    MOEJIT_POINTER(RowChainParams, kept_output, kWritten),
    MOEJIT_POINTER(RowChainParams, kept_scale_inv, kWritten),
    MOEJIT_POINTER(RowChainParams, dprobs_blocks, kRead),
    MOEJIT_POINTER(RowChainParams, dprobs, kWritten),
    MOEJIT_POINTER(RowChainParams, bias_dprobs, kRead),
    MOEJIT_CALL_POINTERS(RowChainParams),
};

constexpr std::array kTileChainPointers = {
    MOEJIT_POINTER(TileChainParams, input, kRead),
    MOEJIT_POINTER(TileChainParams, output, kWritten),
    MOEJIT_POINTER(TileChainParams, output_scale_inv, kWritten),
    MOEJIT_POINTER(TileChainParams, output_colwise, kWritten),
    MOEJIT_POINTER(TileChainParams, output_colwise_scale_inv, kWritten),
    MOEJIT_POINTER(TileChainParams, skip, kRead),
};

constexpr std::array kGroupedGemmPointers = {
    MOEJIT_POINTER(GroupedGemmParams, a_scale_inv, kRead),
    MOEJIT_POINTER(GroupedGemmParams, b_scale_inv, kRead),
    MOEJIT_POINTER(GroupedGemmParams, probs, kRead),
    MOEJIT_POINTER(GroupedGemmParams, d, kWritten),
    MOEJIT_POINTER(GroupedGemmParams, q, kWritten),
    MOEJIT_POINTER(GroupedGemmParams, q_scale_inv, kWritten),
    MOEJIT_POINTER(GroupedGemmParams, counts, kRead),
    MOEJIT_POINTER(GroupedGemmParams, offs, kRead),
    MOEJIT_POINTER(GroupedGemmParams, elapsed, kWritten),
    MOEJIT_POINTER(GroupedGemmParams, bias, kRead),
    MOEJIT_CALL_POINTERS(GroupedGemmParams),
};

constexpr std::array kContractionGroupedGemmPointers = {
    MOEJIT_POINTER(ContractionGroupedGemmParams, a_scale_inv, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, b_scale_inv, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, counts, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, offs, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, elapsed, kWritten),
    MOEJIT_CALL_POINTERS(ContractionGroupedGemmParams),
};

constexpr std::array kTransposePointers = {
    MOEJIT_POINTER(TransposeParams, input, kRead),
    MOEJIT_POINTER(TransposeParams, input_scale_inv, kRead),
    MOEJIT_POINTER(TransposeParams, row_tokens, kRead),
    MOEJIT_POINTER(TransposeParams, counts, kRead),
    MOEJIT_POINTER(TransposeParams, offs, kRead),
    MOEJIT_POINTER(TransposeParams, output_offs, kRead),
    MOEJIT_POINTER(TransposeParams, output, kWritten),
    MOEJIT_POINTER(TransposeParams, output_scale_inv, kWritten),
    MOEJIT_POINTER(TransposeParams, flushed, kWritten),
    MOEJIT_POINTER(TransposeParams, status, kWritten),
    MOEJIT_CALL_POINTERS(TransposeParams),
};

constexpr std::array kGatedGradientPointers = {
    MOEJIT_POINTER(GatedGradientParams, input, kRead),
    MOEJIT_POINTER(GatedGradientParams, gradient, kRead),
    MOEJIT_POINTER(GatedGradientParams, probs, kRead),
    MOEJIT_POINTER(GatedGradientParams, counts, kRead),
    MOEJIT_POINTER(GatedGradientParams, offs, kRead),
    MOEJIT_POINTER(GatedGradientParams, output_offs, kRead),
    MOEJIT_POINTER(GatedGradientParams, output, kWritten),
    MOEJIT_POINTER(GatedGradientParams, output_scale_inv, kWritten),
    MOEJIT_POINTER(GatedGradientParams, output_dprobs, kWritten),
    MOEJIT_POINTER(GatedGradientParams, output_colwise, kWritten),
    MOEJIT_POINTER(GatedGradientParams, output_colwise_scale_inv, kWritten),
    MOEJIT_POINTER(GatedGradientParams, act_colwise, kWritten),
    MOEJIT_POINTER(GatedGradientParams, act_colwise_scale_inv, kWritten),
    MOEJIT_CALL_POINTERS(GatedGradientParams),
};

constexpr std::array kBiasGradientPointers = {
    MOEJIT_POINTER(BiasGradientParams, input, kRead),
    MOEJIT_POINTER(BiasGradientParams, input_scale_inv, kRead),
    MOEJIT_POINTER(BiasGradientParams, probs, kRead),
    MOEJIT_POINTER(BiasGradientParams, bias, kRead),
    MOEJIT_POINTER(BiasGradientParams, counts, kRead),
    MOEJIT_POINTER(BiasGradientParams, offs, kRead),
    MOEJIT_POINTER(BiasGradientParams, output, kWritten),
    MOEJIT_CALL_POINTERS(BiasGradientParams),
};

constexpr std::array kUnpermuteDprobsPointers = {
    MOEJIT_POINTER(UnpermuteDprobsParams, row_map, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, dprobs_blocks, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, bias_dprobs, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, dprobs, kWritten),
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
  RecordMap { #field, offsetof(record, field), access }

constexpr std::array kGroupedGemmMaps = {
    MOEJIT_MAP(GroupedGemmParams, a_map, kRead),
    MOEJIT_MAP(GroupedGemmParams, b_map, kRead),
    MOEJIT_MAP(GroupedGemmParams, d_map, kWritten),
    MOEJIT_MAP(GroupedGemmParams, q_map, kWritten),
};

constexpr std::array kContractionGroupedGemmMaps = {
    MOEJIT_MAP(ContractionGroupedGemmParams, a_map, kRead),
    MOEJIT_MAP(ContractionGroupedGemmParams, b_map, kRead),
    MOEJIT_MAP(ContractionGroupedGemmParams, d_map, kWritten),
};

#undef MOEJIT_MAP
#define MOEJIT_CALL_TOKENS(record) \
  RecordNumber { offsetof(record, call.tokens), CallDim::kTokens }

ParamRecord record(const compiler::RouteSpec&, const Layer&) {
  return {.bytes = sizeof(RouteParams),
          .pointers = kRoutePointers,
          .numbers = {RecordNumber{offsetof(RouteParams, tokens), CallDim::kTokens},
                      RecordNumber{offsetof(RouteParams, max_rows), CallDim::kRows}},
          .number_count = 2};
}

ParamRecord record(const compiler::RowChainSpec& spec, const Layer&) {
  const CallDim rows = walks_permuted_rows(spec) ? CallDim::kRows : CallDim::kTokens;
  return {.bytes = sizeof(RowChainParams),
          .pointers = kRowChainPointers,
          .numbers = {RecordNumber{offsetof(RowChainParams, rows), rows},
                      MOEJIT_CALL_TOKENS(RowChainParams)},
          .number_count = 2};
}

ParamRecord record(const compiler::TileChainSpec&, const Layer& layer) {
  return {.bytes = sizeof(TileChainParams),
          .pointers = kTileChainPointers,
          .numbers = {RecordNumber{offsetof(TileChainParams, matrices), {}, layer.local_experts}},
          .number_count = 1};
}

ParamRecord record(const compiler::GroupedGemmSpec&, const Layer&) {
  return {.bytes = sizeof(GroupedGemmParams),
          .pointers = kGroupedGemmPointers,
          .maps = kGroupedGemmMaps,
          .numbers = {MOEJIT_CALL_TOKENS(GroupedGemmParams)},
          .number_count = 1};
}

ParamRecord record(const compiler::ContractionGroupedGemmSpec&, const Layer&) {
  return {
      .bytes = sizeof(ContractionGroupedGemmParams),
      .pointers = kContractionGroupedGemmPointers,
      .maps = kContractionGroupedGemmMaps,
      .numbers = {RecordNumber{offsetof(ContractionGroupedGemmParams, columns), CallDim::kColumns},
                  MOEJIT_CALL_TOKENS(ContractionGroupedGemmParams)},
      .number_count = 2};
}

ParamRecord record(const compiler::TransposeSpec&, const Layer&) {
  return {.bytes = sizeof(TransposeParams),
          .pointers = kTransposePointers,
          .numbers = {RecordNumber{offsetof(TransposeParams, rows), CallDim::kRows},
                      RecordNumber{offsetof(TransposeParams, output_columns), CallDim::kColumns},
                      MOEJIT_CALL_TOKENS(TransposeParams)},
          .number_count = 3};
}

ParamRecord record(const compiler::GatedGradientSpec&, const Layer&) {
  return {
      .bytes = sizeof(GatedGradientParams),
      .pointers = kGatedGradientPointers,
      .numbers = {RecordNumber{offsetof(GatedGradientParams, rows), CallDim::kRows},
                  RecordNumber{offsetof(GatedGradientParams, output_columns), CallDim::kColumns},
                  MOEJIT_CALL_TOKENS(GatedGradientParams)},
      .number_count = 3};
}

ParamRecord bias_gradient_record() {
  return {.bytes = sizeof(BiasGradientParams),
          .pointers = kBiasGradientPointers,
          .numbers = {RecordNumber{offsetof(BiasGradientParams, rows), CallDim::kRows},
                      MOEJIT_CALL_TOKENS(BiasGradientParams)},
          .number_count = 2};
}

ParamRecord record(const compiler::ColumnSumsSpec&, const Layer&) { return bias_gradient_record(); }

ParamRecord record(const compiler::RowDotsSpec&, const Layer&) { return bias_gradient_record(); }

ParamRecord record(const compiler::UnpermuteDprobsSpec&, const Layer&) {
  return {.bytes = sizeof(UnpermuteDprobsParams),
          .pointers = kUnpermuteDprobsPointers,
          .numbers = {RecordNumber{offsetof(UnpermuteDprobsParams, rows), CallDim::kTokens},
                      MOEJIT_CALL_TOKENS(UnpermuteDprobsParams)},
          .number_count = 2};
}

// The list of a layer is that of its weights.
ParamRecord record(const compiler::MultiCastTransposeSpec&, const Layer& layer) {
  return {.bytes = sizeof(MultiCastTransposeParams),
          .pointers = kMultiCastTransposePointers,
          .numbers = {RecordNumber{
              offsetof(MultiCastTransposeParams, count), {}, 2 * int64_t{layer.local_experts}}},
          .number_count = 1};
}

#undef MOEJIT_CALL_TOKENS

}  // namespace

ParamRecord param_record(const compiler::KernelSpec& spec, const Layer& layer) {
  return std::visit([&](const auto& kind) { return record(kind, layer); }, spec);
}

}  // namespace moejit::runtime
