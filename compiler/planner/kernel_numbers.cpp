// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"

namespace moejit::compiler {
namespace {

using Numbers = std::vector<KernelNumber>;

// What kernels take beside it that check T of a backward call.
const KernelNumber kCallTokens{.role = "call.tokens", .dim = CallDim::kTokens};

Numbers numbers(const RouteSpec&, const CallBounds&) {
  return {{.role = "tokens", .dim = CallDim::kTokens}, {.role = "max_rows", .dim = CallDim::kRows}};
}

Numbers numbers(const RowChainSpec& spec, const CallBounds&) {
  const CallDim rows = walks_permuted_rows(spec) ? CallDim::kRows : CallDim::kTokens;
  return {{.role = "rows", .dim = rows}, kCallTokens};
}

Numbers numbers(const TileChainSpec&, const CallBounds& bounds) {
  return {{.role = "matrices", .dim = {}, .value = bounds.groups}};
}

Numbers numbers(const GroupedGemmSpec&, const CallBounds&) { return {kCallTokens}; }

Numbers numbers(const ContractionGroupedGemmSpec&, const CallBounds&) {
  return {{.role = "columns", .dim = CallDim::kColumns}, kCallTokens};
}

Numbers rows_and_columns() {
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          kCallTokens};
}

Numbers numbers(const TransposeSpec&, const CallBounds&) { return rows_and_columns(); }

Numbers numbers(const GatedGradientSpec&, const CallBounds&) { return rows_and_columns(); }

Numbers rows_of_groups() { return {{.role = "rows", .dim = CallDim::kRows}, kCallTokens}; }

Numbers numbers(const ColumnSumsSpec&, const CallBounds&) { return rows_of_groups(); }

Numbers numbers(const RowDotsSpec&, const CallBounds&) { return rows_of_groups(); }

Numbers numbers(const UnpermuteDprobsSpec&, const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kTokens}, kCallTokens};
}

Numbers numbers(const MultiCastTransposeSpec&, const CallBounds& bounds) {
  return {{.role = "count", .dim = {}, .value = bounds.list_length}};
}

}  // namespace

std::vector<KernelNumber> kernel_numbers(const KernelSpec& spec, const CallBounds& bounds) {
  return std::visit([&](const auto& kind) { return numbers(kind, bounds); }, spec);
}

}  // namespace moejit::compiler
