// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "compiler/planner/operation.h"
#include "compiler/support/json_view.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::compiler {

// Data with scales beside it, or data alone if scales have no shape.
struct ScaledTensor {
  std::string role;
  std::vector<Dim> shape;
  std::vector<Dim> scales_shape;
  Layout scales = Layout::kScalesCompact;
  DType dtype = DType::kF8E4M3;
  DType scales_dtype = DType::kF32;
  std::string scales_name = {};  // empty: "<role>_scale_inv"
};

using KernelMaker =
    std::function<Result<KernelPlan>(const Target& target, const PlanOptions& options)>;

// What a description means: all its fields, the caller's tensors, whose roles and bytes
// plan_operation() sets, and its one kernel.
struct OperationParts {
  OperationDescription description;
  std::vector<TensorPlan> tensors;
  KernelMaker make_kernel;  // complete
};

// Reads the fields of an operation, and collects its tensors by the roles of its kernel. A field
// that is wrong or missing counts as one with a legal value; the first such error is kept.
class OperationDraft {
 public:
  OperationDraft(std::string_view name, const JsonView& root) : root_(root) {
    parts_.description.name = name;
  }

  // Read a field. Later ranges and defaults may depend on earlier fields.
  int64_t required(std::string_view key, const IntRange& range);
  int64_t integer(std::string_view key, const IntRange& range, int64_t otherwise);
  int32_t int32(std::string_view key, const IntRange& range, int32_t otherwise);
  // Returns a dimension whose size is a required field.
  Dim dim(std::string symbol, std::string_view key, const IntRange& range);
  bool boolean(std::string_view key, bool otherwise = false);
  // Returns one of `values`, of which the first is the default.
  template <typename Values>
  auto choice(std::string_view key, const Values& values);
  Activation activation(std::string_view key);
  std::vector<MatrixSize> sizes(std::string_view key);
  RouterFormula router(std::string_view key, int32_t experts, int32_t top_k);
  // Says that a field's value does not go with another one: "got 2 `beside`, wanted `wanted`". Such
  // errors come after errors of single fields.
  void refuse(std::string_view key, std::string_view beside, std::string_view wanted,
              std::string_view hint);

  // Add a tensor that the kernel reads or writes.
  void read(std::string role, DType dtype, std::vector<Dim> shape,
            Layout layout = Layout::kRowMajor);
  void write(std::string role, DType dtype, std::vector<Dim> shape,
             Layout layout = Layout::kRowMajor);
  void read(ScaledTensor tensor);
  void write(ScaledTensor tensor);
  // Adds the scales of a tensor that was added, as "<role>_scale_inv".
  void read_scales(const std::string& role, std::vector<Dim> shape,
                   Layout layout = Layout::kRowMajor);
  // Add a tensor of so many elements that callers may leave out.
  void read_optional(std::string role, DType dtype, int64_t elements);
  void write_optional(std::string role, DType dtype, int64_t elements);

  // Set the kernel: the one that a layer's graph has for such an operation. Or one of a spec, whose
  // arguments are the tensors of these roles. Or another one.
  void make(OperationKind kind, const CallBounds& bounds);
  void make(KernelSpec spec, std::vector<std::string> reasons,
            std::initializer_list<std::string_view> roles, const CallBounds& bounds);
  void make(KernelMaker maker) { parts_.make_kernel = std::move(maker); }

  const std::vector<OperationField>& fields() const { return parts_.description.fields; }
  // Returns the parts of the operation, or the first error of a field.
  Result<OperationParts> take() &&;

 private:
  template <typename Value, typename Read>
  Value field(std::string_view key, Value otherwise, bool is_required, const Read& read_value);
  std::string chosen(std::string_view key, std::span<const std::string_view> names);
  Port add(std::string role, DType dtype, std::vector<Dim> shape, Layout layout);
  Port add(ScaledTensor tensor);

  JsonView root_;
  Result<void> result_, refusal_;
  OperationParts parts_;
  Operation operation_;
};

// Read the fields of an operation, and say its tensors and its kernel (docs/operations-api.md).
void describe_quantize(OperationDraft& draft);
void describe_quantize_weights(OperationDraft& draft);
void describe_pack_weights(OperationDraft& draft);
void describe_quantize_columns(OperationDraft& draft);
void describe_quantize_weight_columns(OperationDraft& draft);
void describe_transpose(OperationDraft& draft);
void describe_multi_cast_transpose(OperationDraft& draft);
void describe_route(OperationDraft& draft);
void describe_permute(OperationDraft& draft, bool quantizes, bool is_gradient);
void describe_unpermute(OperationDraft& draft, bool is_gradient);
void describe_activation(OperationDraft& draft, bool quantizes);
void describe_activation_backward(OperationDraft& draft, bool quantizes);
void describe_grouped_gemm(OperationDraft& draft);
void describe_contraction_grouped_gemm(OperationDraft& draft);
void describe_scale_columns(OperationDraft& draft);
void describe_scale_weight_columns(OperationDraft& draft);
void describe_scale_experts(OperationDraft& draft);
void describe_amax_rows(OperationDraft& draft);
void describe_amax_weights(OperationDraft& draft);
void describe_swizzle_scales(OperationDraft& draft);
void describe_router(OperationDraft& draft);
void describe_router_backward(OperationDraft& draft);

// Returns the names of all operations, in the order in which errors list them.
std::vector<std::string_view> operation_names();

// Reads a description as parse_operation() does.
Result<OperationParts> read_operation(std::string_view json, std::string_view source_name);

// Return the name that descriptions have for a value.
std::string_view choice_name(DType dtype);
inline std::string_view choice_name(std::string_view name) { return name; }
std::string_view choice_name(const auto& value) { return to_string(value); }

template <typename Values>
auto OperationDraft::choice(std::string_view key, const Values& values) {
  std::vector<std::string_view> names;
  for (const auto& value : values) names.push_back(choice_name(value));
  const std::string name = chosen(key, names);
  return *std::ranges::find(values, name, [](const auto& value) { return choice_name(value); });
}

}  // namespace moejit::compiler
