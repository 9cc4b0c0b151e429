// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/bias_gradient.h"
#include "compiler/kernels/block_cast.h"
#include "compiler/kernels/cast_transpose.h"
#include "compiler/kernels/collective.h"
#include "compiler/kernels/contraction_grouped_gemm.h"
#include "compiler/kernels/exchange.h"
#include "compiler/kernels/expert_scales.h"
#include "compiler/kernels/gated_gradient.h"
#include "compiler/kernels/group_columns.h"
#include "compiler/kernels/grouped_gemm.h"
#include "compiler/kernels/route.h"
#include "compiler/kernels/route_permute.h"
#include "compiler/kernels/router.h"
#include "compiler/kernels/row_chain.h"
#include "compiler/kernels/shared_choices.h"
#include "compiler/kernels/state_scales.h"
#include "compiler/kernels/tile_chain.h"
#include "compiler/kernels/transpose.h"
#include "compiler/kernels/unpermute_dprobs.h"
#include "compiler/kernels/weight_check.h"
#include "compiler/kernels/weight_pack.h"

#include <string>
#include <variant>

namespace moejit::compiler {

// A spec holds every compile-time choice of one kernel: it alone decides the emitted text. Device
// skeletons and stages of the same names live in templates/moejit_device.
struct KernelSpec
    : std::variant<RouteSpec, RowChainSpec, TileChainSpec, GroupedGemmSpec,
                   ContractionGroupedGemmSpec, TransposeSpec, ColumnCastSpec, GatedGradientSpec,
                   ColumnSumsSpec, RowDotsSpec, UnpermuteDprobsSpec, MultiCastTransposeSpec,
                   MatrixAmaxSpec, ExpertScalesSpec, BlockCastSpec, SwizzleScalesSpec,
                   GroupColumnsSpec, ExchangeChoicesSpec, DispatchRowsSpec, AwaitRowsSpec,
                   DispatchPermuteSpec, RouteDispatchPermuteSpec, CombineRowsSpec, TakeScalesSpec,
                   UpdateScalesSpec, TwoLevelCastSpec, CastTransposeSpec, PackChoicesSpec,
                   TakeChoicesSpec, CompareTokensSpec, CombineArrivedSpec, WeightCheckSpec,
                   SplitRowsSpec, RouteMapSpec, RoutePermuteSpec, WeightPackSpec, RouterSpec,
                   RouterBackwardSpec, SharedChoicesSpec, SharedDprobsSpec> {
  using variant::variant;
  // Not inline: of so many kinds these are hundreds of functions, which every file would have
  // again.
  KernelSpec();
  KernelSpec(const KernelSpec& other);
  KernelSpec(KernelSpec&& other) noexcept;
  KernelSpec& operator=(const KernelSpec& other);
  KernelSpec& operator=(KernelSpec&& other) noexcept;
  ~KernelSpec();
  bool operator==(const KernelSpec& other) const;
};

// Returns the spec in one line of "name=value" words, in a stable order: "row_chain load=rows
// quantize=1x128 ...".
std::string to_string(const KernelSpec& spec);

}  // namespace moejit::compiler
