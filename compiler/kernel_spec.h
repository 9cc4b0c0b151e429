// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/spec/bias_gradient_spec.h"
#include "compiler/spec/contraction_grouped_gemm_spec.h"
#include "compiler/spec/grouped_gemm_spec.h"
#include "compiler/spec/route_spec.h"
#include "compiler/spec/row_chain_spec.h"
#include "compiler/spec/tile_chain_spec.h"
#include "compiler/spec/transpose_spec.h"
#include "compiler/spec/unpermute_dprobs_spec.h"

#include <string>
#include <variant>

namespace moejit::compiler {

// A spec holds every compile-time choice of one kernel: it alone decides the emitted text. Device
// skeletons and stages of the same names live in templates/moejit_device.
using KernelSpec =
    std::variant<RouteSpec, RowChainSpec, TileChainSpec, GroupedGemmSpec,
                 ContractionGroupedGemmSpec, TransposeSpec, GatedGradientSpec,
                 MultiCastTransposeSpec, ColumnSumsSpec, RowDotsSpec, UnpermuteDprobsSpec>;

// The spec in one line of "name=value" words, stable: "row_chain load=rows quantize=1x128 ...".
std::string to_string(const KernelSpec& spec);

}  // namespace moejit::compiler
