// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/kernel_kind.h"

#include "compiler/launch.h"

#include <algorithm>
#include <fmt/core.h>
#include <type_traits>
#include <variant>

namespace moejit::compiler {
namespace {

// Calls a function with the kind of a spec and the spec.
template <typename Visit>
decltype(auto) visit_kind(const KernelSpec& spec, const Visit& visit) {
  return std::visit(
      [&](const auto& kind) -> decltype(auto) {
        return visit(KernelKind<std::remove_cvref_t<decltype(kind)>>{}, kind);
      },
      spec);
}

}  // namespace

KernelSpec::KernelSpec() = default;
KernelSpec::KernelSpec(const KernelSpec& other) = default;
KernelSpec::KernelSpec(KernelSpec&& other) noexcept = default;
KernelSpec& KernelSpec::operator=(const KernelSpec& other) = default;
KernelSpec& KernelSpec::operator=(KernelSpec&& other) noexcept = default;
KernelSpec::~KernelSpec() = default;
bool KernelSpec::operator==(const KernelSpec& other) const = default;

std::string to_string(const KernelSpec& spec) {
  return std::visit([](const auto& kind) { return to_string(kind); }, spec);
}

LaunchShape launch_shape(const KernelSpec& spec) {
  return visit_kind(spec, [](auto kind, const auto& own) { return kind.shape(own); });
}

int64_t busy_ctas(const KernelSpec& spec, const CallBounds& bounds, int64_t tokens) {
  return visit_kind(spec,
                    [&](auto kind, const auto& own) { return kind.busy(own, bounds, tokens); });
}

std::vector<KernelNumber> kernel_numbers(const KernelSpec& spec, const CallBounds& bounds) {
  return visit_kind(spec, [&](auto kind, const auto& own) { return kind.numbers(own, bounds); });
}

Work count_work(const KernelPlan& kernel, const CallRows& rows) {
  return visit_kind(
      kernel.spec, [&](auto kind, const auto& own) { return kind.work(own, kernel.bounds, rows); });
}

KernelText kernel_text(const KernelSpec& spec) {
  return visit_kind(spec, [](auto kind, const auto& own) { return kind.text(own); });
}

const ParamRecord& param_record(const KernelSpec& spec) {
  return visit_kind(
      spec, [](auto kind, const auto& own) -> const ParamRecord& { return kind.record(own); });
}

namespace {

std::string layout_of(const ParamRecord& record) {
  std::string text = fmt::format("{} {}:", record.name, record.bytes);
  for (const auto tensors : {record.pointers, record.maps})
    for (const RecordTensor& tensor : tensors)
      text += fmt::format(" {}@{}", tensor.role, tensor.offset);
  for (const RecordNumber& number : record.numbers)
    text += fmt::format(" {}@{}", number.role, number.offset);
  return text + "\n";
}

// Returns the layouts of the kinds' records, each once, though kinds may share a record.
template <typename... Specs>
std::string layouts_of(std::type_identity<std::variant<Specs...>>) {
  std::string text;
  for (const std::string& layout : {layout_of(KernelKind<Specs>::record(Specs{}))...})
    if (text.find(layout) == std::string::npos) text += layout;
  return text;
}

Access access_of(std::span<const RecordTensor> tensors, std::string_view role) {
  const auto found = std::ranges::find(tensors, role, &RecordTensor::role);
  return found == tensors.end() ? Access::kRead : found->access;  // refused by the loader
}

}  // namespace

std::string param_record_layouts() { return layouts_of(std::type_identity<KernelSpec::variant>{}); }

void set_access(KernelPlan& kernel) {
  const ParamRecord& record = param_record(kernel.spec);
  for (KernelArgument& argument : kernel.arguments)
    argument.access = access_of(record.pointers, argument.role);
  for (TensorMapPlan& map : kernel.tensor_maps) map.access = access_of(record.maps, map.role);
}

}  // namespace moejit::compiler
