// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_activation.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/check/sampled_gemm.h"
#include "runtime/check/tensor_check.h"
#include "runtime/check/tensor_core_rule.h"
#include "runtime/checkpoint/four_bit_format.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/end_scaled_gemm.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/packed_weights.h"
#include "runtime/trial/file_tensors.h"

#include <algorithm>
#include <cmath>

namespace moejit::check {
namespace {

using runtime::copy_elements;

using compiler::DType;
using compiler::GemmBias;
using compiler::GemmScales;
using compiler::GroupedGemmSpec;

// The reference takes about ten seconds on two cores for so many multiply-adds.
constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 33, kMaxBf16MultiplyAdds = int64_t{1} << 32;

int64_t columns_of(const GroupedGemmSpec& spec) { return int64_t{spec.sections} * spec.section_n; }

// Adds a bias to a GEMM's sums for the sampled rows, as kernels do. `sample.source_rows` are the
// permuted rows that were sampled.
void add_bias(const GroupedGemmSpec& spec, const KernelTensors& tensors, const RowSample& sample,
              std::vector<float>& sums) {
  if (spec.bias == GemmBias::kNone) return;
  const int64_t columns = columns_of(spec);
  std::vector<uint16_t> bias = copy_elements<uint16_t>(tensors.at("bias"));
  if (spec.has_interleaved_bias) bias = reference::gate_first<uint16_t>(bias, columns / 2, 1);
  const bool has_probs = spec.bias == GemmBias::kColumnsTimesProb;
  for (size_t e = 0; e < sample.route.counts.size(); ++e) {
    const int64_t first = sample.route.offs[e];
    for (int64_t row = first; row < first + sample.route.counts[e]; ++row) {
      const auto source = static_cast<size_t>(sample.source_rows[static_cast<size_t>(row)]);
      for (int64_t column = 0; column < columns; ++column) {
        float& sum = sums[static_cast<size_t>(row * columns + column)];
        const float added = reference::float_from_bf16(
            bias[e * static_cast<size_t>(columns) + static_cast<size_t>(column)]);
        sum = has_probs ? std::fma(added, tensors.view<float>("probs")[source], sum) : sum + added;
      }
    }
  }
}

void compare(const GroupedGemmSpec& spec, const KernelTensors& tensors, const RowSample& sample,
             std::vector<float> sums, CheckList& list) {
  const int64_t columns = columns_of(spec);
  const std::string_view name = tensors.name("d");
  add_bias(spec, tensors, sample, sums);
  const std::vector<uint16_t> got =
      gather_rows(tensors.view<uint16_t>("d"), columns, sample.source_rows);
  TensorCheck check = check_of(
      name, testing::compare_bf16({name, columns}, got, reference::bf16_from_floats(sums)));
  check.verdict +=
      sampled_text(std::ssize(sample.source_rows), tensors.route().routed_rows(), "rows");
  list.add(std::move(check));
}

void check_block_scaled(const GroupedGemmSpec& spec, const KernelTensors& tensors,
                        CheckList& list) {
  const reference::QuantizedWeights b =
      is_b_packed(spec) ? reference::unpack_weights(
                              tensors.view<uint8_t>("b"), tensors.view<float>("b_scale_inv"),
                              spec.local_experts, columns_of(spec), spec.k, spec.sections)
                        : tensors.weights("b", spec.sections);
  const GemmSample sample =
      sample_gemm(tensors.rows("a"), tensors.route(), b.rows, kMaxMultiplyAdds);
  compare(spec, tensors, sample,
          reference::grouped_gemm_sums(sample.rows, b, sample.route, spec.blocks_per_promotion),
          list);
}

// Returns gate's and up's matrices one below the other, as B [E, sections * rows, columns]. Zeros
// fill up either to `rows`.
std::vector<uint16_t> joined_weights(const GroupedGemmSpec& spec, const KernelTensors& tensors) {
  const bool is_transposed = spec.b_major == compiler::Major::kMn;
  const auto columns = static_cast<size_t>(is_transposed ? spec.section_n : spec.k);
  const auto rows = static_cast<size_t>(is_transposed ? spec.k / 2 : spec.section_n);
  const size_t given = static_cast<size_t>(spec.separate_rows) * columns;
  std::vector<uint16_t> joined(2 * static_cast<size_t>(spec.local_experts) * rows * columns);
  auto to = joined.begin();
  for (size_t e = 0; e < static_cast<size_t>(spec.local_experts); ++e)
    for (const std::string_view role : {"b", "b_up"}) {
      std::ranges::copy(tensors.view<uint16_t>(role).subspan(e * given, given), to);
      to += static_cast<std::ptrdiff_t>(rows * columns);
    }
  return joined;
}

// Checks a GEMM in bf16. Scales, if there are any, multiply complete sums: one for each expert's A
// and B.
void check_bf16(const GroupedGemmSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const std::vector<uint16_t> joined =
      is_separate(spec) ? joined_weights(spec, tensors) : std::vector<uint16_t>();
  const reference::Bf16Weights b{.values = is_separate(spec) ? joined : tensors.view<uint16_t>("b"),
                                 .columns = columns_of(spec),
                                 .depth = spec.k,
                                 .is_transposed = spec.b_major == compiler::Major::kMn};
  const RowSample sample = sample_rows(
      tensors.route(), kMaxBf16MultiplyAdds / std::max<int64_t>(1, b.columns * b.depth));
  const std::vector<uint16_t> a =
      gather_rows(tensors.view<uint16_t>("a"), spec.k, sample.source_rows);
  std::vector<float> sums = reference::bf16_grouped_gemm_sums(
      a, b, sample.route, tensor_core_rule(tensors.plan().target));
  for (size_t e = 0; spec.scales != GemmScales::kNone && e < sample.route.counts.size(); ++e) {
    const float factor =
        tensors.view<float>("a_scale_inv")[e] * tensors.view<float>("b_scale_inv")[e];
    for (int64_t i = sample.route.offs[e] * b.columns; i < sample.route.offs[e + 1] * b.columns;
         ++i)
      sums[static_cast<size_t>(i)] *= factor;
  }
  compare(spec, tensors, sample, std::move(sums), list);
}

// Checks a GEMM of rows in bf16 with packed weights, whose sections have factors.
void check_packed_bf16(const GroupedGemmSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const int64_t columns = columns_of(spec);
  const reference::Bf16Codes codes = reference::unpack_four_bit(
      checkpoint::four_bit_format(spec.b_packed).value(), tensors.view<uint8_t>("b"),
      spec.local_experts, columns, spec.k, spec.sections);
  const RowSample sample =
      sample_rows(tensors.route(), kMaxBf16MultiplyAdds / std::max<int64_t>(1, columns * spec.k));
  compare(spec, tensors, sample,
          reference::packed_gemm_sums(
              gather_rows(tensors.view<uint16_t>("a"), spec.k, sample.source_rows), codes,
              tensors.view<float>("b_scale_inv"), sample.route,
              tensor_core_rule(tensors.plan().target)),
          list);
}

std::vector<float> decoded(std::span<const uint8_t> codes, reference::Fp8Format format) {
  std::vector<float> values;
  for (const uint8_t code : codes) values.push_back(reference::decode_fp8(code, format));
  return values;
}

// Checks a GEMM in FP8 whose scales multiply complete sums.
void check_end_scaled(const GroupedGemmSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const reference::Route route = tensors.route();
  const int64_t columns = columns_of(spec);
  const RowSample all =
      sample_rows(route, kMaxBf16MultiplyAdds / std::max<int64_t>(1, columns * spec.k));
  const bool by_row = spec.scales == GemmScales::kRowColumn;
  std::vector<uint8_t> a;
  std::vector<float> a_scales;
  const std::span<const uint8_t> codes = tensors.view<uint8_t>("a");
  const std::span<const float> scales = tensors.view<float>("a_scale_inv");
  for (size_t e = 0; e < all.route.counts.size(); ++e)
    for (int64_t row = all.route.offs[e]; row < all.route.offs[e + 1]; ++row) {
      const int64_t source = all.source_rows[static_cast<size_t>(row)];
      const auto first = codes.begin() + source * spec.k;
      a.insert(a.end(), first, first + spec.k);
      a_scales.push_back(scales[by_row ? static_cast<size_t>(source) : e]);
    }
  std::vector<float> b_scales;
  const std::span<const float> of_b = tensors.view<float>("b_scale_inv");
  for (int64_t i = 0; i < int64_t{spec.local_experts} * columns; ++i)
    b_scales.push_back(of_b[static_cast<size_t>(by_row ? i : i / columns)]);
  compare(
      spec, tensors, all,
      reference::end_scaled_gemm_sums(
          {.a_format = trial::fp8_format(a_format(spec)),
           .b_format = trial::fp8_format(spec.operands),
           .rule = tensor_core_rule(tensors.plan().target),
           .order = by_row ? reference::ScaleOrder::kRowThenColumn
                           : reference::ScaleOrder::kProductOfScales,
           .rows = std::ssize(all.source_rows),
           .columns = columns,
           .depth = spec.k,
           .a = decoded(a, trial::fp8_format(a_format(spec))),
           .b = decoded(tensors.view<uint8_t>("b"), trial::fp8_format(spec.operands)),
           .a_scale = a_scales,
           .b_scale = b_scales},
          all.route, is_one_chain(spec) ? spec.k : spec.blocks_per_promotion * reference::kBlock),
      list);
}

void check_product(const GroupedGemmSpec& spec, const KernelTensors& tensors, CheckList& list) {
  switch (spec.scales) {
    case GemmScales::kRowBlock: return check_block_scaled(spec, tensors, list);
    case GemmScales::kTensor:
      return spec.operands == DType::kBF16 ? check_bf16(spec, tensors, list)
                                           : check_end_scaled(spec, tensors, list);
    case GemmScales::kRowColumn: return check_end_scaled(spec, tensors, list);
    case GemmScales::kSection: return check_packed_bf16(spec, tensors, list);
    case GemmScales::kNone: return check_bf16(spec, tensors, list);
  }
}

}  // namespace

// Checks the product and, if the kernel stores it, the activation. The wanted activation is
// computed from the rounded product, so that must be stored too.
void check_kernel(const GroupedGemmSpec& spec, const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has("d")) return;
  if (tensors.has("a") && tensors.has("b")) check_product(spec, tensors, list);
  if (!stores_activation(spec) || !tensors.has("q")) return;
  if (!quantizes_activation(spec))
    return check_bf16_activation(spec.activation, spec.section_n, spec.is_interleaved, tensors, "d",
                                 "q", list);
  if (spec.rounds_activation)
    return check_rounded_rows(
        activation_values(spec.activation, spec.section_n, spec.is_interleaved, tensors, "d"),
        spec.epsilon, tensors, "q", list);
  const reference::Route route = tensors.route();
  list.add(check_quantized(
      tensors.name("q"), tensors.name("q_scale_inv"),
      reference::activate(tensors.view<uint16_t>("d"), tensors.view<float>("probs"), route.rows(),
                          spec.section_n, reference_of(spec.activation)),
      route, 1, tensors.rows("q")));
}

}  // namespace moejit::check
