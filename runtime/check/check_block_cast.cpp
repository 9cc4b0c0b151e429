// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/two_level.h"
#include "runtime/reference/weight_digest.h"

#include <fmt/core.h>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;

using compiler::BlockCastSpec;
using compiler::CastResult;
using reference::MxMatrix;

// Returns the rows that a kernel casts. If there are groups, their pad rows are zeros, and rows end
// with the last group.
std::vector<uint16_t> values_of(const BlockCastSpec& spec, const KernelTensors& tensors) {
  if (spec.matrix_rows > 0) return copy_elements<uint16_t>(tensors.at("input"));
  const reference::Route route = tensors.route();
  std::vector<uint16_t> rows = permuted_rows(spec.source, spec.columns, tensors);
  rows.resize(static_cast<size_t>(route.rows() * spec.columns));
  return reference::with_zero_pads(rows, spec.columns, route.counts, route.offs);
}

// Returns the values that a cast by columns leaves where blocks of 32 rows restart at each group.
std::vector<uint16_t> column_values_of_groups(const BlockCastSpec& spec,
                                              const std::vector<uint16_t>& rows,
                                              const KernelTensors& tensors) {
  const std::vector<int32_t> offs = tensors.route().offs;
  std::vector<uint16_t> values;
  for (size_t e = 0; e + 1 < offs.size(); ++e) {
    const auto of_group =
        std::span(rows).subspan(static_cast<size_t>(int64_t{offs[e]} * spec.columns),
                                static_cast<size_t>(int64_t{offs[e + 1] - offs[e]} * spec.columns));
    const std::vector<uint16_t> cast = reference::mx_column_values(
        reference::quantize_mx_columns(of_group, offs[e + 1] - offs[e], spec.columns));
    values.insert(values.end(), cast.begin(), cast.end());
  }
  return values;
}

// Compares `wanted` with the first bytes of a tensor; a kernel may leave the rest unwritten.
void check_bytes(std::string_view role, const std::vector<uint8_t>& wanted, int64_t columns,
                 const KernelTensors& tensors, CheckList& list) {
  std::span<const uint8_t> got = tensors.view<uint8_t>(role);
  if (got.size() > wanted.size()) got = got.first(wanted.size());
  const std::string_view name = tensors.name(role);
  list.add(check_of(name, testing::compare_bytes({name, columns}, got, wanted)));
}

void check_cast(const BlockCastSpec& spec, std::string_view role, const MxMatrix& wanted,
                const std::vector<uint16_t>& values, const KernelTensors& tensors,
                CheckList& list) {
  if (!tensors.has(role)) return;
  if (spec.result == CastResult::kValues) return list.bf16(tensors, role, values);
  list.codes(tensors, role, wanted.q);
  check_bytes(fmt::format("{}_scale_inv", role), wanted.scale, spec.columns, tensors, list);
}

}  // namespace

void check_kernel(const BlockCastSpec& spec, const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has("input")) return;
  const std::vector<uint16_t> values = values_of(spec, tensors);
  const int64_t rows = std::ssize(values) / spec.columns;
  if (spec.casts_rows) {
    const MxMatrix wanted = reference::quantize_mx_rows(values, rows, spec.columns);
    check_cast(spec, "output", wanted, reference::mx_row_values(wanted), tensors, list);
  }
  if (spec.casts_columns) {
    if (spec.starts_anywhere)
      return list.bf16(tensors, "output_colwise", column_values_of_groups(spec, values, tensors));
    const MxMatrix wanted = reference::quantize_mx_columns(values, rows, spec.columns);
    check_cast(spec, "output_colwise", wanted, reference::mx_column_values(wanted), tensors, list);
  }
}

void check_kernel(const compiler::SwizzleScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input")) return;
  const reference::Route route = tensors.route();
  const reference::TransposeGroups groups{
      .counts = route.counts,
      .offs = route.offs,
      .output_offs = copy_elements<int32_t>(tensors.at("output_offs"))};
  const MxMatrix scales{.rows = route.rows(),
                        .cols = spec.columns,
                        .q = {},
                        .scale = copy_elements<uint8_t>(tensors.at("input"))};
  if (spec.group == 16) {
    const HostTensor& input = tensors.at("input");
    const std::span<const uint8_t> given = elements<uint8_t>(input);
    const std::vector<uint8_t> wanted =
        spec.of_columns
            ? reference::swizzled_column_scales(
                  given, spec.columns, reference::kTwoLevelBlock * input.shape.back(), groups)
            : reference::swizzled_row_scales(given, spec.columns, groups);
    return check_bytes("output", wanted, 512, tensors, list);
  }
  const int64_t rows = groups.output_offs.back();
  check_bytes("output",
              spec.of_columns ? reference::swizzle_column_scales(scales, groups, rows, 0)
                              : reference::swizzle_row_scales(scales, groups, rows, 0),
              512, tensors, list);
}

void check_kernel(const compiler::ColumnCastSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input")) return;
  const CastOperand got(tensors, "output");
  const std::vector<uint16_t> rows = permuted_rows(spec.source, spec.columns, tensors);
  got.compare(reference::quantize_columns(rows, spec.columns, got.groups(), got.output_columns(),
                                          spec.epsilon, 0),
              "exact", list);
}

// Checks the digest alone: a cast is checked by what it writes.
void check_kernel(const compiler::WeightCheckSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("w1") || !tensors.has("w2") || !tensors.has("digest")) return;
  const std::vector<uint32_t> digest = reference::weight_digest(
      tensors.view<uint16_t>("w1"), tensors.view<uint16_t>("w2"), spec.window_probes);
  // The words before the digest tell about the last launch.
  std::vector<int32_t> wanted = copy_elements<int32_t>(tensors.at("digest"));
  const size_t header = wanted.size() - std::min(digest.size(), wanted.size());
  for (size_t i = header; i < wanted.size(); ++i)
    wanted[i] = static_cast<int32_t>(digest[i - header]);
  list.integers(tensors, "digest", wanted);
}

}  // namespace moejit::check
