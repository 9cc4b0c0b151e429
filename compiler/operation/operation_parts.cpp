// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"

#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>

namespace moejit::compiler {

Port PartsBuilder::add(std::string role, DType dtype, std::vector<Dim> shape, bool is_optional) {
  tensors_.push_back(
      {.name = role, .dtype = dtype, .shape = std::move(shape), .is_optional = is_optional});
  return {.role = role, .tensor = role};
}

Port PartsBuilder::add(Scaled&& tensor) {
  Port port = add(tensor.role, tensor.dtype, std::move(tensor.shape), false);
  port.scale_inv =
      tensor.scales_name.empty() ? tensor.role + "_scale_inv" : std::move(tensor.scales_name);
  tensors_.push_back({.name = port.scale_inv,
                      .dtype = tensor.scales_dtype,
                      .shape = std::move(tensor.scales_shape),
                      .layout = tensor.scales});
  return port;
}

void PartsBuilder::read(std::string role, DType dtype, std::vector<Dim> shape, Layout layout) {
  operation_.reads.push_back(add(std::move(role), dtype, std::move(shape), false));
  tensors_.back().layout = layout;
}

void PartsBuilder::read_optional(std::string role, DType dtype, std::vector<Dim> shape) {
  operation_.reads.push_back(add(std::move(role), dtype, std::move(shape), true));
}

void PartsBuilder::write(std::string role, DType dtype, std::vector<Dim> shape, Layout layout) {
  operation_.writes.push_back(add(std::move(role), dtype, std::move(shape), false));
  tensors_.back().layout = layout;
}

void PartsBuilder::write_optional(std::string role, DType dtype, std::vector<Dim> shape) {
  operation_.writes.push_back(add(std::move(role), dtype, std::move(shape), true));
}

void PartsBuilder::read(Scaled tensor) { operation_.reads.push_back(add(std::move(tensor))); }

void PartsBuilder::write(Scaled tensor) { operation_.writes.push_back(add(std::move(tensor))); }

void PartsBuilder::read_rows(std::string role, RowFormat format, const Dim& rows,
                             const Dim& columns, const Format& codes) {
  if (format == RowFormat::kBf16) return read(std::move(role), DType::kBF16, {rows, columns});
  read(scaled_rows(std::move(role), rows, columns, codes));
}

void PartsBuilder::write_rows(std::string role, RowFormat format, const Dim& rows,
                              const Dim& columns, const Format& codes) {
  if (format == RowFormat::kBf16) return write(std::move(role), DType::kBF16, {rows, columns});
  write(scaled_rows(std::move(role), rows, columns, codes));
}

OperationParts PartsBuilder::make(OperationKind kind, const CallBounds& bounds,
                                  const PlanContext& context) && {
  operation_.kind = std::move(kind);
  KernelPlan kernel = make_kernel(
      operation_, {.bounds = bounds, .target = context.target, .options = context.options});
  complete_kernel(kernel, bounds);
  return {std::move(kernel), std::move(tensors_)};
}

Dim fixed(int64_t size) { return {std::to_string(size), size}; }

Dim columns_of(int64_t columns) { return {"columns", columns}; }

Dim blocks_of(const Dim& dim) {
  return {fmt::format("ceil({}/128)", dim.symbol), (dim.value + 127) / 128};
}

Dim groups_of(const Dim& dim) {
  const Dim blocks = blocks_of(dim);
  return {fmt::format("4*{}", blocks.symbol), 4 * blocks.value};
}

PartsBuilder::Scaled scaled_rows(std::string role, const Dim& rows, const Dim& columns,
                                 const Format& codes) {
  if (has_two_levels(codes)) return two_level_rows(std::move(role), rows, columns);
  if (codes.rule == ScaleRule::kE8m0)
    return {.role = std::move(role),
            .shape = {rows, columns},
            .scales_shape = {rows, groups_of(columns)},
            .scales = Layout::kScalesGroups,
            .scales_dtype = DType::kF8E8M0};
  if (has_row_scale(codes))
    return {.role = std::move(role),
            .shape = {rows, columns},
            .scales_shape = {rows},
            .scales = Layout::kRowMajor};
  return {.role = std::move(role),
          .shape = {rows, columns},
          .scales_shape = {rows, blocks_of(columns)}};
}

namespace {

// Returns the dimension of so many parts of another one, which they fill up.
Dim parts_of_dim(const Dim& dim, int64_t size, int64_t value) {
  return {fmt::format("{}/{}", dim.symbol, size), value / size};
}

}  // namespace

PartsBuilder::Scaled two_level_rows(std::string role, const Dim& rows, const Dim& columns,
                                    std::vector<Dim> before) {
  const Dim blocks = blocks_of(columns);
  PartsBuilder::Scaled tensor{.role = std::move(role),
                              .shape = before,
                              .scales_shape = std::move(before),
                              .scales = Layout::kScalesGroups,
                              .dtype = DType::kF4E2M1x2,
                              .scales_dtype = DType::kF8E4M3};
  tensor.shape.insert(tensor.shape.end(), {rows, parts_of_dim(columns, 2, columns.value)});
  tensor.scales_shape.insert(tensor.scales_shape.end(),
                             {rows, {fmt::format("8*{}", blocks.symbol), 8 * blocks.value}});
  return tensor;
}

PartsBuilder::Scaled two_level_columns(std::string role, const Dim& rows, const Dim& columns,
                                       std::vector<Dim> before) {
  const int64_t pitch = two_level_pitch(rows.value);
  // P of the description: transposed columns lie as far apart in every call.
  const Dim filled{rows.symbol == "P" ? "P'" : rows.symbol, pitch};
  PartsBuilder::Scaled tensor{.role = std::move(role),
                              .shape = before,
                              .scales_shape = std::move(before),
                              .scales = Layout::kScalesGroups,
                              .dtype = DType::kF4E2M1x2,
                              .scales_dtype = DType::kF8E4M3};
  tensor.shape.insert(tensor.shape.end(), {columns, parts_of_dim(filled, 2, pitch)});
  tensor.scales_shape.insert(tensor.scales_shape.end(), {columns, parts_of_dim(filled, 16, pitch)});
  return tensor;
}

void read_groups(PartsBuilder& parts, int64_t local_experts) {
  parts.read("counts", DType::kI32, {{"E", local_experts}});
  parts.read("offs", DType::kI32, {{"E+1", local_experts + 1}});
}

CallBounds bounds_of(const RoutedTokens& tokens) {
  return {.max_tokens = tokens.max_tokens,
          .top_k = static_cast<int32_t>(tokens.top_k),
          .groups = static_cast<int32_t>(tokens.local_experts),
          .splits_alignment = static_cast<int32_t>(tokens.splits_alignment),
          .max_permuted_rows = tokens.max_permuted_rows};
}

}  // namespace moejit::compiler
