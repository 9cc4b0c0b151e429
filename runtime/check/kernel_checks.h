// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "runtime/check/kernel_tensors.h"

namespace moejit::check {

// Compares what a kernel wrote with what the CPU reference makes of what the kernel read. Tensors
// whose contents are not known are left out.
void check_kernel(const compiler::RouteSpec& spec, const KernelTensors& tensors, CheckList& list);
void check_kernel(const compiler::SplitRowsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::RouteMapSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::TileChainSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::RoutePermuteSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::GroupedGemmSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::ContractionGroupedGemmSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::TransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::ColumnCastSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::CastTransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::BlockCastSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::TwoLevelCastSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::SwizzleScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::GroupColumnsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::GatedGradientSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::ColumnSumsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::RowDotsSpec& spec, const KernelTensors& tensors, CheckList& list);
void check_kernel(const compiler::UnpermuteDprobsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::MultiCastTransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::MatrixAmaxSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::ExpertScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::TakeScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::UpdateScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::WeightCheckSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::WeightPackSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::RouterSpec& spec, const KernelTensors& tensors, CheckList& list);
void check_kernel(const compiler::RouterBackwardSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::SharedChoicesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::SharedDprobsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::ExchangeChoicesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::DispatchRowsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::DispatchPermuteSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::RouteDispatchPermuteSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::AwaitRowsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::CombineRowsSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::PackChoicesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::TakeChoicesSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::CompareTokensSpec& spec, const KernelTensors& tensors,
                  CheckList& list);
void check_kernel(const compiler::CombineArrivedSpec& spec, const KernelTensors& tensors,
                  CheckList& list);

// The next functions check parts of row chains, each in a file of its own. They check casts and
// moves of rows, sums of tokens, the activation, and its gradients.
void check_rows(const compiler::RowChainSpec& spec, const KernelTensors& tensors, CheckList& list);
void check_unpermute(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                     CheckList& list);
void check_activation(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                      CheckList& list);
void check_activation_gradient(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                               CheckList& list);
// Compares dprobs with the sum of each row's blocks, to which biases then add their part.
void check_dprobs(const KernelTensors& tensors, CheckList& list);

}  // namespace moejit::check
