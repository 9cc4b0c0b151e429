// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_case.h"

#include "runtime/reference/random_inputs.h"

#include <cmath>
#include <numeric>

namespace moejit::measure {
namespace {

constexpr double kRaggedShare = 0.3;
constexpr uint64_t kRaggedSeed = 1;

std::string name_of(const auto& choice) { return std::string(compiler::to_string(choice)); }

}  // namespace

std::string_view to_string(GemmOperation operation) {
  return operation == GemmOperation::kGroupedGemm ? "grouped_gemm" : "contraction_grouped_gemm";
}

bool is_row_grouped(const GemmCase& gemm) { return gemm.operation == GemmOperation::kGroupedGemm; }

int32_t group_size(const GemmCase& gemm) {
  return is_row_grouped(gemm) ? gemm.rows_per_group : gemm.columns_per_group;
}

int64_t most_rows(const GemmCase& gemm) {
  const double largest = group_size(gemm) * (gemm.is_ragged ? 1.0 + kRaggedShare : 1.0);
  return gemm.groups * (static_cast<int64_t>(std::ceil(largest)) + gemm.splits_alignment - 1);
}

int64_t GemmGroups::real_rows() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

GemmGroups make_groups(const GemmCase& gemm) {
  const reference::RandomStream random(kRaggedSeed, 0);
  GemmGroups groups{.counts = {}, .offs = {0}};
  for (int32_t group = 0; group < gemm.groups; ++group) {
    const double off = kRaggedShare * (2.0 * random.uniform(static_cast<uint64_t>(group)) - 1.0);
    const double rows = group_size(gemm) * (gemm.is_ragged ? 1.0 + off : 1.0);
    const auto count = static_cast<int32_t>(std::lround(rows));
    const int32_t alignment = gemm.splits_alignment;
    groups.counts.push_back(count);
    groups.offs.push_back(groups.offs.back() + (count + alignment - 1) / alignment * alignment);
  }
  return groups;
}

compiler::DType operands_of(const GemmCase& gemm) {
  return gemm.scales == compiler::GemmScales::kNone ? compiler::DType::kBF16
                                                    : compiler::DType::kF8E4M3;
}

compiler::OperationDescription operation_of(const GemmCase& gemm, int64_t rows) {
  if (is_row_grouped(gemm))
    return {"grouped_gemm",
            {{"local_experts", gemm.groups},
             {"max_permuted_rows", rows},
             {"sections", gemm.sections},
             {"n", gemm.n},
             {"k", gemm.k},
             {"scales", name_of(gemm.scales)},
             {"accumulation", name_of(gemm.accumulation)},
             {"scale_sharing_k", gemm.scale_sharing_k}}};
  return {"contraction_grouped_gemm",
          {{"local_experts", gemm.groups},
           {"max_columns", rows},
           {"rows", gemm.rows},
           {"n", gemm.n},
           {"scales", name_of(gemm.gradient_scales)},
           {"output", name_of(gemm.output)},
           {"accumulation", name_of(gemm.accumulation)}}};
}

}  // namespace moejit::measure
