// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "compiler/planner/operation.h"

#include <string>
#include <utility>
#include <vector>

namespace moejit::compiler {

// The parts of an operation's plan: one complete kernel, and the caller's tensors, whose roles and
// bytes plan_operation() sets.
struct OperationParts {
  KernelPlan kernel;
  std::vector<TensorPlan> tensors;
};

// What a plan is made for.
struct PlanContext {
  const Target& target;
  const PlanOptions& options;
};

Result<OperationParts> parts_of(const QuantizeOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const QuantizeWeightsOperation& operation,
                                const PlanContext& context);
Result<OperationParts> parts_of(const RouteOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const PermutePadOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const UnpermuteOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const ActivationOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const TransposeOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const ScaleColumnsOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const AmaxRowsOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const AmaxWeightsOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const ScaleExpertsOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const QuantizeColumnsOperation& operation,
                                const PlanContext& context);
Result<OperationParts> parts_of(const SwizzleScalesOperation& operation,
                                const PlanContext& context);
Result<OperationParts> parts_of(const MultiCastTransposeOperation& operation,
                                const PlanContext& context);
Result<OperationParts> parts_of(const GroupedGemmOperation& operation, const PlanContext& context);
Result<OperationParts> parts_of(const ContractionGroupedGemmOperation& operation,
                                const PlanContext& context);

// Collects the tensors of an operation by the roles of its kernel. Makes the kernel from them as
// for an operation of a layer's graph.
class PartsBuilder {
 public:
  void read(std::string role, DType dtype, std::vector<Dim> shape,
            Layout layout = Layout::kRowMajor);
  void read_optional(std::string role, DType dtype, std::vector<Dim> shape);
  void write(std::string role, DType dtype, std::vector<Dim> shape,
             Layout layout = Layout::kRowMajor);
  void write_optional(std::string role, DType dtype, std::vector<Dim> shape);

  // The data and scales of a tensor, e4m3 by default.
  struct Scaled {
    std::string role;
    std::vector<Dim> shape;
    std::vector<Dim> scales_shape;
    Layout scales = Layout::kScalesCompact;
    DType dtype = DType::kF8E4M3;
    std::string scales_name = {};  // empty: "<role>_scale_inv"
    DType scales_dtype = DType::kF32;
  };
  void read(Scaled tensor);
  void write(Scaled tensor);
  // Add rows [rows, columns] in bf16, or as codes with scales of that format.
  void read_rows(std::string role, RowFormat format, const Dim& rows, const Dim& columns,
                 const Format& codes = kRows1x128);
  void write_rows(std::string role, RowFormat format, const Dim& rows, const Dim& columns,
                  const Format& codes = kRows1x128);

  // Returns the tensors with the kernel that a layer's graph has for such an operation.
  OperationParts make(OperationKind kind, const CallBounds& bounds, const PlanContext& context) &&;
  // Returns the tensors with a kernel that is complete already.
  OperationParts with(KernelPlan kernel) && { return {std::move(kernel), std::move(tensors_)}; }

 private:
  Port add(std::string role, DType dtype, std::vector<Dim> shape, bool is_optional);
  Port add(Scaled&& tensor);

  std::vector<TensorPlan> tensors_;
  Operation operation_;
};

// Return codes of E2M1 with scales on two levels. By rows: [rows, columns / 2] with scales [rows, 8
// * ceil(columns / 128)]; by columns, transposed: [columns, rows / 2] with scales [columns, rows /
// 16]. Rows are at most `rows` there and filled up to a multiple of 16. `before` are dimensions in
// front of these.
PartsBuilder::Scaled two_level_rows(std::string role, const Dim& rows, const Dim& columns,
                                    std::vector<Dim> before = {});
PartsBuilder::Scaled two_level_columns(std::string role, const Dim& rows, const Dim& columns,
                                       std::vector<Dim> before = {});

// Return dimensions with the symbols that the listing of a plan shows.
Dim fixed(int64_t size);
Dim columns_of(int64_t columns);
Dim blocks_of(const Dim& dim);  // blocks of 128 elements: "ceil(columns/128)"
Dim groups_of(const Dim& dim);  // groups of 32 in blocks of 128: "4*ceil(columns/128)"

// Returns rows [rows, columns] of codes, with the scales of that format.
PartsBuilder::Scaled scaled_rows(std::string role, const Dim& rows, const Dim& columns,
                                 const Format& codes);

// Adds reads of the groups' sizes and starts, [E] and [E + 1].
void read_groups(PartsBuilder& parts, int64_t local_experts);

CallBounds bounds_of(const RoutedTokens& tokens);

}  // namespace moejit::compiler
