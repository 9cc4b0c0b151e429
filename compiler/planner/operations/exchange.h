// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/exchange.h"

#include <string>
#include <variant>
#include <vector>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// A step of an exchange between ranks. Its reads and writes have the names of the kernel's fields
// as roles, and leaving out optional writes makes the kernel simpler.
struct ExchangeKernel {
  std::variant<ExchangeChoicesSpec, DispatchRowsSpec, DispatchPermuteSpec, RouteDispatchPermuteSpec,
               AwaitRowsSpec, CombineRowsSpec>
      spec;
  std::vector<std::string> reasons;
};

KernelPlan make_kernel(const Operation& operation, const ExchangeKernel& exchange,
                       const KernelContext& context);
inline void narrow(Operation&, const ExchangeKernel&) {}

}  // namespace moejit::compiler
