// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_draft.h"

#include "compiler/parser/read_layer_parts.h"
#include "compiler/parser/read_router.h"
#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::size_t kMostSizes = 1024;  // most tensors in a list, within kMaxDescriptionValues
constexpr int64_t kMostElements = int64_t{1} << 48;  // of all tensors, so that bytes are countable

Result<MatrixSize> read_size(const JsonView& view) {
  constexpr IntRange kSizeRange{.lowest = 0, .highest = int64_t{1} << 31};
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> numbers, view.read_array());
  if (numbers.size() != 2)
    return view.fail(ErrorCode::kInvalidValue,
                     fmt::format("got {} numbers, wanted [rows, columns]", numbers.size()));
  MOEJIT_TRY_ASSIGN(const int64_t rows, numbers[0].read_int(kSizeRange));
  MOEJIT_TRY_ASSIGN(const int64_t columns, numbers[1].read_int(kSizeRange));
  return MatrixSize{rows, columns};
}

Result<std::vector<MatrixSize>> read_sizes(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  if (elements.empty() || elements.size() > kMostSizes)
    return view.fail(ErrorCode::kInvalidValue,
                     fmt::format("got {} sizes, wanted 1 to {}", elements.size(), kMostSizes));
  std::vector<MatrixSize> sizes;
  int64_t count = 0;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(const MatrixSize size, read_size(element));
    sizes.push_back(size);
    count += size.rows * size.columns;
    if (count > kMostElements)
      return view.fail(ErrorCode::kInvalidValue,
                       fmt::format("got {} elements in the first {} tensors, wanted at most {}",
                                   count, sizes.size(), kMostElements),
                       "cast the tensors in several lists");
  }
  return sizes;
}

}  // namespace

template <typename Value, typename Read>
Value OperationDraft::field(std::string_view key, Value otherwise, bool is_required,
                            const Read& read_value) {
  Value value = std::move(otherwise);
  if (result_ && (is_required || root_.find(key))) {
    Result<Value> got = root_.at(key).and_then(read_value);
    if (got)
      value = *std::move(got);
    else
      result_ = tl::unexpected(std::move(got).error());
  }
  parts_.description.fields.push_back({std::string(key), value});
  return value;
}

int64_t OperationDraft::required(std::string_view key, const IntRange& range) {
  return field(key, range.lowest, true, [&](const JsonView& view) { return view.read_int(range); });
}

int64_t OperationDraft::integer(std::string_view key, const IntRange& range, int64_t otherwise) {
  return field(key, otherwise, false, [&](const JsonView& view) { return view.read_int(range); });
}

int32_t OperationDraft::int32(std::string_view key, const IntRange& range, int32_t otherwise) {
  return static_cast<int32_t>(integer(key, range, otherwise));
}

Dim OperationDraft::dim(std::string symbol, std::string_view key, const IntRange& range) {
  return {std::move(symbol), required(key, range)};
}

bool OperationDraft::boolean(std::string_view key, bool otherwise) {
  return field(key, otherwise, false, [](const JsonView& view) { return view.read_bool(); });
}

std::string OperationDraft::chosen(std::string_view key, std::span<const std::string_view> names) {
  return field(key, std::string(names.front()), false, [&](const JsonView& view) {
    return view.read_choice(names).map(
        [&](std::size_t index) { return std::string(names[index]); });
  });
}

Activation OperationDraft::activation(std::string_view key) {
  return field(key, Activation(), false, read_activation);
}

std::vector<MatrixSize> OperationDraft::sizes(std::string_view key) {
  return field(key, std::vector<MatrixSize>(), true, read_sizes);
}

RouterFormula OperationDraft::router(std::string_view key, int32_t experts, int32_t top_k) {
  return field(key, RouterFormula(), false,
               [&](const JsonView& view) { return read_router(view, experts, top_k); });
}

void OperationDraft::refuse(std::string_view key, std::string_view beside, std::string_view wanted,
                            std::string_view hint) {
  if (!refusal_) return;
  const JsonView view = root_.find(key).value_or(root_);
  const std::string what = fmt::format("got {} {}, wanted {}", view.got(), beside, wanted);
  refusal_ = view.fail(ErrorCode::kInvalidValue, what, std::string(hint));
}

Port OperationDraft::add(std::string role, DType dtype, std::vector<Dim> shape, Layout layout) {
  parts_.tensors.push_back(
      {.name = role, .dtype = dtype, .shape = std::move(shape), .layout = layout});
  return {.role = role, .tensor = role};
}

Port OperationDraft::add(ScaledTensor tensor) {
  Port port = add(tensor.role, tensor.dtype, std::move(tensor.shape), Layout::kRowMajor);
  if (tensor.scales_shape.empty()) return port;
  port.scale_inv = tensor.scales_name.empty() ? tensor.role + "_scale_inv" : tensor.scales_name;
  parts_.tensors.back().scale_inv = port.scale_inv;
  add(port.scale_inv, tensor.scales_dtype, std::move(tensor.scales_shape), tensor.scales);
  return port;
}

void OperationDraft::read(std::string role, DType dtype, std::vector<Dim> shape, Layout layout) {
  operation_.reads.push_back(add(std::move(role), dtype, std::move(shape), layout));
}

void OperationDraft::write(std::string role, DType dtype, std::vector<Dim> shape, Layout layout) {
  operation_.writes.push_back(add(std::move(role), dtype, std::move(shape), layout));
}

void OperationDraft::read(ScaledTensor tensor) {
  operation_.reads.push_back(add(std::move(tensor)));
}

void OperationDraft::write(ScaledTensor tensor) {
  operation_.writes.push_back(add(std::move(tensor)));
}

void OperationDraft::read_scales(const std::string& role, std::vector<Dim> shape, Layout layout) {
  const std::string scales = role + "_scale_inv";
  std::ranges::find(parts_.tensors, role, &TensorPlan::name)->scale_inv = scales;
  read(scales, DType::kF32, std::move(shape), layout);
}

void OperationDraft::read_optional(std::string role, DType dtype, int64_t elements) {
  read(std::move(role), dtype, {{std::to_string(elements), elements}});
  parts_.tensors.back().is_optional = true;
}

void OperationDraft::write_optional(std::string role, DType dtype, int64_t elements) {
  write(std::move(role), dtype, {{std::to_string(elements), elements}});
  parts_.tensors.back().is_optional = true;
}

void OperationDraft::make(OperationKind kind, const CallBounds& bounds) {
  operation_.kind = std::move(kind);
  make([operation = operation_, bounds](const Target& target, const PlanOptions& options) {
    KernelPlan kernel =
        make_kernel(operation, {.bounds = bounds, .target = target, .options = options});
    complete_kernel(kernel, bounds);
    return kernel;
  });
}

void OperationDraft::make(KernelSpec spec, std::vector<std::string> reasons,
                          std::initializer_list<std::string_view> roles, const CallBounds& bounds) {
  KernelPlan kernel{.spec = std::move(spec), .reasons = std::move(reasons)};
  add_arguments(kernel, operation_, roles);
  make([kernel, bounds](const Target&, const PlanOptions&) {
    KernelPlan complete = kernel;
    complete_kernel(complete, bounds);
    return complete;
  });
}

Result<OperationParts> OperationDraft::take() && {
  MOEJIT_TRY(result_);
  MOEJIT_TRY(refusal_);
  return std::move(parts_);
}

std::string_view choice_name(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3: return "f8_e4m3";
    case DType::kF8E5M2: return "f8_e5m2";
    case DType::kF4E2M1x2: return "f4_e2m1";
    case DType::kBF16: return "bf16";
    default: return "f32";
  }
}

}  // namespace moejit::compiler
