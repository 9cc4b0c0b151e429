// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/check/sampled_gemm.h"
#include "runtime/check/tensor_core_rule.h"
#include "runtime/reference/end_scaled_gemm.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/trial/file_tensors.h"

#include <algorithm>
#include <cmath>

namespace moejit::check {
namespace {

using runtime::element_count;
using runtime::elements;
using runtime::HostTensor;

using compiler::ContractionGroupedGemmSpec;
using compiler::GradientScales;
using reference::block_count;
using reference::Fp8Format;
using reference::kBlock;
using reference::QuantizedRows;

constexpr double kMaxContractionMultiplyAdds = 0x1p31;  // for all experts together

// An operand whose tokens lie as columns, [rows, C]. It has a scale for each tile, [rows / 128, C /
// 128], or for each row and 128 of its columns, [C / 128, rows].
class ColumnOperand {
 public:
  ColumnOperand(const KernelTensors& tensors, std::string_view role, std::string_view scales_role,
                GradientScales scales)
      : q_(trial::join_column_blocks(tensors.at(role))),
        scales_(tensors.view<float>(scales_role)),
        has_tiles_(scales == GradientScales::kTile),
        rule_(tensor_core_rule(tensors.plan().target)) {}

  int64_t rows() const { return q_.shape[0]; }
  bool has_tiles() const { return has_tiles_; }
  // Returns the chosen rows, cut to an expert's columns.
  QuantizedRows part(const std::vector<int64_t>& rows, int64_t first, int64_t count) const {
    const int64_t columns = q_.shape[1], blocks = block_count(count);
    QuantizedRows chosen{
        .rows = std::ssize(rows), .cols = blocks * kBlock, .q = {}, .scale_inv = {}, .rule = rule_};
    const auto codes = elements<uint8_t>(q_).begin();
    for (const int64_t row : rows) {
      const auto code = codes + (row * columns + first);
      chosen.q.insert(chosen.q.end(), code, code + chosen.cols);
      for (int64_t block = first / kBlock; block < first / kBlock + blocks; ++block)
        chosen.scale_inv.push_back(scale(row, block));
    }
    return chosen;
  }

 private:
  float scale(int64_t row, int64_t block) const {
    const int64_t blocks = q_.shape[1] / kBlock;
    const int64_t at = has_tiles_ ? row / kBlock * blocks + block : block * rows() + row;
    return scales_[static_cast<size_t>(at)];
  }

  HostTensor q_;
  std::span<const float> scales_;
  bool has_tiles_;
  reference::TensorCoreRule rule_;
};

// An operand whose tokens lie as columns, [rows, C]. Its scales multiply complete sums; each expert
// has one, or each of its rows.
class EndScaledOperand {
 public:
  EndScaledOperand(const ContractionGroupedGemmSpec& spec, const KernelTensors& tensors,
                   std::string_view role, std::string_view scales_role, compiler::DType format)
      : q_(trial::join_column_blocks(tensors.at(role))),
        scales_(tensors.view<float>(scales_role)),
        format_(trial::fp8_format(format)),
        by_row_(spec.scales == GradientScales::kRowColumn),
        is_one_chain_(spec.accumulation == compiler::GemmAccumulation::kFast),
        rule_(tensor_core_rule(tensors.plan().target)) {}

  int64_t rows() const { return q_.shape[0]; }
  Fp8Format format() const { return format_; }
  bool by_row() const { return by_row_; }
  bool is_one_chain() const { return is_one_chain_; }
  const reference::TensorCoreRule& rule() const { return rule_; }
  // Returns the values of the chosen rows, cut to an expert's columns.
  std::vector<float> values(const std::vector<int64_t>& rows, int64_t first, int64_t count) const {
    const int64_t columns = q_.shape[1];
    const std::span<const uint8_t> codes = elements<uint8_t>(q_);
    std::vector<float> chosen;
    for (const int64_t row : rows)
      for (int64_t i = 0; i < count; ++i)
        chosen.push_back(
            reference::decode_fp8(codes[static_cast<size_t>(row * columns + first + i)], format_));
    return chosen;
  }
  std::vector<float> scales(const std::vector<int64_t>& rows, size_t expert) const {
    std::vector<float> chosen;
    for (const int64_t row : rows)
      chosen.push_back(
          scales_[by_row_ ? expert * static_cast<size_t>(q_.shape[0]) + static_cast<size_t>(row)
                          : expert]);
    return chosen;
  }

 private:
  HostTensor q_;
  std::span<const float> scales_;
  Fp8Format format_;
  bool by_row_, is_one_chain_;
  reference::TensorCoreRule rule_;
};

// An operand in bf16, [P, columns]. Samples choose among its columns.
class RowOperand {
 public:
  RowOperand(const KernelTensors& tensors, std::string_view role)
      : tensor_(tensors.at(role)), rule_(tensor_core_rule(tensors.plan().target)) {}

  int64_t rows() const { return tensor_.shape.back(); }
  const reference::TensorCoreRule& rule() const { return rule_; }
  std::vector<uint16_t> part(const std::vector<int64_t>& columns, int64_t first,
                             int64_t count) const {
    const std::span<const uint16_t> all = elements<uint16_t>(tensor_);
    std::vector<uint16_t> chosen;
    for (int64_t row = first; row < first + count; ++row)
      for (const int64_t column : columns)
        chosen.push_back(all[static_cast<size_t>(row * rows() + column)]);
    return chosen;
  }

 private:
  const HostTensor& tensor_;
  reference::TensorCoreRule rule_;
};

// An operand in bf16 with a scale for each expert, which multiplies complete sums.
class ScaledRowOperand : public RowOperand {
 public:
  ScaledRowOperand(const KernelTensors& tensors, std::string_view role,
                   std::string_view scales_role)
      : RowOperand(tensors, role), scales_(tensors.view<float>(scales_role)) {}

  float scale(size_t expert) const { return scales_[expert]; }

 private:
  std::span<const float> scales_;
};

// Maps rows of A to rows of the gradient. A's rows come in sections; each ends with pad rows that
// the gradient does not have.
class RowSections {
 public:
  explicit RowSections(const ContractionGroupedGemmSpec& spec)
      : rows_(result_rows(spec)),
        padded_rows_(spec.rows / spec.sections),
        sections_(spec.sections),
        is_interleaved_(spec.is_interleaved) {}

  bool has(int64_t a_row) const { return a_row % padded_rows_ < rows_; }
  int64_t gradient_row(int64_t a_row) const {
    const int64_t section = a_row / padded_rows_, row = a_row % padded_rows_;
    return is_interleaved_ ? sections_ * row + section : section * rows_ + row;
  }
  int64_t gradient_rows() const { return sections_ * rows_; }

 private:
  int64_t rows_, padded_rows_, sections_;
  bool is_interleaved_;
};

std::vector<float> gradient_of(const EndScaledOperand& a, const std::vector<int64_t>& of_a,
                               const EndScaledOperand& b, const std::vector<int64_t>& of_b,
                               size_t expert, int64_t first, int32_t count) {
  if (count == 0) return std::vector<float>(of_a.size() * of_b.size());
  const auto rows = static_cast<int32_t>(of_a.size());
  return reference::end_scaled_gemm_sums(
      {.a_format = a.format(),
       .b_format = b.format(),
       .rule = a.rule(),
       .order = a.by_row() ? reference::ScaleOrder::kRowThenColumn
                           : reference::ScaleOrder::kProductOfScales,
       .rows = rows,
       .columns = std::ssize(of_b),
       .depth = count,
       .a = a.values(of_a, first, count),
       .b = b.values(of_b, first, count),
       .a_scale = a.scales(of_a, expert),
       .b_scale = b.scales(of_b, expert)},
      {.counts = {rows}, .offs = {0, rows}, .row_map = {}}, a.is_one_chain() ? count : kBlock);
}

std::vector<float> gradient_of(const ColumnOperand& a, const std::vector<int64_t>& of_a,
                               const ColumnOperand& b, const std::vector<int64_t>& of_b, size_t,
                               int64_t first, int32_t count) {
  const auto padded = static_cast<int32_t>(block_count(count) * kBlock);
  return reference::weight_gradient(a.part(of_a, first, count), b.part(of_b, first, count),
                                    {.counts = {count}, .offs = {0, padded}, .row_map = {}},
                                    a.has_tiles() ? reference::ScaleOrder::kProductOfScales
                                                  : reference::ScaleOrder::kRowThenColumn);
}

std::vector<float> gradient_of(const RowOperand& a, const std::vector<int64_t>& of_a,
                               const RowOperand& b, const std::vector<int64_t>& of_b, size_t,
                               int64_t first, int32_t count) {
  return reference::bf16_weight_gradient(
      a.part(of_a, first, count), std::ssize(of_a), b.part(of_b, first, count), std::ssize(of_b),
      {.counts = {count}, .offs = {0, count}, .row_map = {}}, a.rule());
}

std::vector<float> gradient_of(const ScaledRowOperand& a, const std::vector<int64_t>& of_a,
                               const ScaledRowOperand& b, const std::vector<int64_t>& of_b,
                               size_t expert, int64_t first, int32_t count) {
  const RowOperand &a_rows = a, &b_rows = b;
  std::vector<float> sums = gradient_of(a_rows, of_a, b_rows, of_b, expert, first, count);
  if (count == 0) return sums;  // zeros, whatever the scales are
  const float factor = a.scale(expert) * b.scale(expert);
  for (float& sum : sums) sum *= factor;
  return sums;
}

// Some elements of the gradient, with their wanted values.
struct ContractionSample {
  std::vector<size_t> at;
  std::vector<float> wanted;
};

// Samples all elements of the gradient. If these would take the CPU too long, samples some rows and
// columns of every expert.
template <typename Operand>
ContractionSample take_sample(const ContractionGroupedGemmSpec& spec, const KernelTensors& tensors,
                              const Operand& a, const Operand& b) {
  const reference::Route route = tensors.route();
  const RowSections sections(spec);
  const double affordable =
      std::sqrt(kMaxContractionMultiplyAdds /
                std::max<double>(1.0, static_cast<double>(route.routed_rows())));
  ContractionSample sample;
  for (size_t e = 0; e < route.counts.size(); ++e) {
    std::vector<int64_t> of_a =
        choose_affordable(reference::RandomStream(0, 2 * e), affordable, a.rows());
    const std::vector<int64_t> of_b =
        choose_affordable(reference::RandomStream(0, 2 * e + 1), affordable, b.rows());
    std::erase_if(of_a, [&](int64_t row) { return !sections.has(row); });
    const std::vector<float> wanted =
        gradient_of(a, of_a, b, of_b, e, route.offs[e], route.counts[e]);
    sample.wanted.insert(sample.wanted.end(), wanted.begin(), wanted.end());
    const size_t first = e * static_cast<size_t>(sections.gradient_rows());
    for (const int64_t row : of_a)
      for (const int64_t column : of_b)
        sample.at.push_back((first + static_cast<size_t>(sections.gradient_row(row))) *
                                static_cast<size_t>(b.rows()) +
                            static_cast<size_t>(column));
  }
  return sample;
}

template <typename T>
std::vector<T> gather(const HostTensor& tensor, std::span<const size_t> at) {
  const std::span<const T> all = elements<T>(tensor);
  std::vector<T> chosen;
  for (const size_t i : at) chosen.push_back(all[i]);
  return chosen;
}

// Returns values of a gradient in its dtype.
std::vector<float> gather_values(const HostTensor& tensor, std::span<const size_t> at) {
  if (tensor.dtype != compiler::DType::kBF16) return gather<float>(tensor, at);
  std::vector<float> values;
  for (const uint16_t bits : gather<uint16_t>(tensor, at))
    values.push_back(reference::float_from_bf16(bits));
  return values;
}

// Returns the part of a sample that belongs to one of two sections, at its places in a gradient of
// its own.
ContractionSample section_of(const ContractionSample& sample, size_t section, size_t elements) {
  ContractionSample part;
  for (size_t i = 0; i < sample.at.size(); ++i) {
    const size_t matrix = sample.at[i] / elements;
    if (matrix % 2 != section) continue;
    part.at.push_back(matrix / 2 * elements + sample.at[i] % elements);
    part.wanted.push_back(sample.wanted[i]);
  }
  return part;
}

void compare(const KernelTensors& tensors, std::string_view role, bool adds,
             ContractionSample sample, CheckList& list) {
  if (!tensors.has(role) || (adds && tensors.before(role) == nullptr)) return;
  const HostTensor& gradient = tensors.at(role);
  const std::string_view name = tensors.name(role);
  if (adds) {
    const std::vector<float> old = gather_values(*tensors.before(role), sample.at);
    for (size_t i = 0; i < old.size(); ++i) sample.wanted[i] += old[i];
  }
  TensorCheck check = check_of(
      name, gradient.dtype == compiler::DType::kBF16
                ? testing::compare_bf16({name}, gather<uint16_t>(gradient, sample.at),
                                        reference::bf16_from_floats(sample.wanted))
                : testing::compare_f32({name}, gather<float>(gradient, sample.at), sample.wanted));
  check.verdict += sampled_text(std::ssize(sample.at), element_count(gradient.shape), "elements");
  list.add(std::move(check));
}

void compare(const ContractionGroupedGemmSpec& spec, const KernelTensors& tensors,
             ContractionSample sample, CheckList& list) {
  const bool adds = compiler::adds(spec.output);
  if (!spec.is_separate) return compare(tensors, "d", adds, std::move(sample), list);
  const auto elements = static_cast<size_t>(int64_t{result_rows(spec)} * spec.n);
  compare(tensors, "d", adds, section_of(sample, 0, elements), list);
  compare(tensors, "d_up", adds, section_of(sample, 1, elements), list);
}

}  // namespace

void check_kernel(const ContractionGroupedGemmSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("a") || !tensors.has("b") || !tensors.has("d")) return;
  if (compiler::adds(spec.output) && tensors.before("d") == nullptr) return;
  if (spec.scales == GradientScales::kNone) {
    const RowOperand a(tensors, "a"), b(tensors, "b");
    return compare(spec, tensors, take_sample(spec, tensors, a, b), list);
  }
  if (has_bf16_end_scales(spec)) {
    const ScaledRowOperand a(tensors, "a", "a_scale_inv"), b(tensors, "b", "b_scale_inv");
    return compare(spec, tensors, take_sample(spec, tensors, a, b), list);
  }
  if (has_end_scales(spec)) {
    const EndScaledOperand a(spec, tensors, "a", "a_scale_inv", a_format(spec)),
        b(spec, tensors, "b", "b_scale_inv", operands_of(spec));
    return compare(spec, tensors, take_sample(spec, tensors, a, b), list);
  }
  const ColumnOperand a(tensors, "a", "a_scale_inv", spec.scales),
      b(tensors, "b", "b_scale_inv", spec.scales);
  compare(spec, tensors, take_sample(spec, tensors, a, b), list);
}

}  // namespace moejit::check
