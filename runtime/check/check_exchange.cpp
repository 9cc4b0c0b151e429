// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"

namespace moejit::check {

// What peers have sent is not known to one rank: tests of groups compare whole exchanges.
void check_kernel(const compiler::ExchangeChoicesSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::DispatchRowsSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::DispatchPermuteSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::RouteDispatchPermuteSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::AwaitRowsSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::CombineRowsSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::PackChoicesSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::TakeChoicesSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::CompareTokensSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::CombineArrivedSpec&, const KernelTensors&, CheckList&) {}

}  // namespace moejit::check
