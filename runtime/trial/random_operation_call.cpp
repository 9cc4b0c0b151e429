// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/packed_bf16_weights.h"
#include "runtime/reference/packed_weights.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/scales.h"
#include "runtime/reference/two_level.h"
#include "runtime/trial/device_tensors.h"
#include "runtime/trial/file_tensors.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::trial {
namespace {

using runtime::element_count;
using runtime::make_tensor;

using compiler::CallDim;
using compiler::DType;
using compiler::Plan;
using compiler::TensorPlan;
using reference::RandomStream;

class RandomCall {
 public:
  RandomCall(const Plan& plan, int64_t size, const RandomInputs& random)
      : plan_(plan), random_(random), groups_(random_groups(plan, size, random)) {
    call_.dims = groups_.dims;
  }

  CallInputs make() && {
    if (const auto list = listed_tensors(plan_)) {
      add_list(*list);
    } else {
      for (const TensorPlan& tensor : plan_.tensors)
        if (compiler::reads(plan_.kernels.front(), tensor.name) && !is_left_out(tensor) &&
            std::ranges::count(plan_.tensors, tensor.name, &TensorPlan::scale_inv) == 0)
          add(tensor);
    }
    call_.rows = count_rows(plan_, call_);
    return std::move(call_);
  }

 private:
  static bool is_left_out(const TensorPlan& tensor) {
    return tensor.is_optional && tensor.role == compiler::TensorRole::kInput;
  }

  std::vector<int64_t> shape_of(const TensorPlan& tensor) const {
    std::vector<int64_t> shape;
    for (const compiler::Dim& dim : tensor.shape)
      shape.push_back(compiler::size_in_call(dim, call_.dims));
    return shape;
  }

  // Returns a seed that depends on the tensor's name, so that tensors get different numbers.
  uint64_t seed_of(std::string_view name) const {
    uint64_t purpose = 200;
    for (const char letter : name) purpose = 31 * purpose + static_cast<uint8_t>(letter);
    return RandomStream(random_.seed, purpose).bits(0);
  }

  template <typename T>
  void put(const TensorPlan& tensor, const std::vector<T>& values) {
    call_.tensors[tensor.name] = make_tensor(tensor.dtype, shape_of(tensor), values);
  }

  void add(const TensorPlan& tensor) {
    const std::string& name = tensor.name;
    if (name == "logits") {
      add_logits(tensor);
    } else if (name == "topk_ids" || name == "chosen_ids") {
      call_.tensors[name] =
          make_topk_ids(tensor.dtype, shape_of(tensor), {groups_.ids.begin(), groups_.ids.end()});
    } else if (name == "routing_map") {
      put(tensor, routing_map(tensor));
    } else if (name == "row_map") {
      put(tensor, groups_.route.row_map);
    } else if (name == "counts" || name == "unbiased_counts") {
      put(tensor, groups_.route.counts);
    } else if (name == "offs") {
      put(tensor, groups_.route.offs);
    } else if (name == "output_offs") {
      put(tensor, groups_.column_starts);
    } else if (name == "probs") {
      call_.tensors[name] = make_topk_probs(tensor.dtype, shape_of(tensor), probs_of(tensor));
    } else if (name == "expert_scales" || name == "amax") {
      put(tensor, positive_floats(tensor));
    } else if (name == "score_sums" || name == "z_sum") {
      put(tensor, sums_so_far(tensor));
    } else if (name == "input_zero") {
      return;  // added with its codes
    } else if (name == "status" || name == "flushed") {
      put(tensor, std::vector<std::byte>(static_cast<size_t>(tensor.bytes)));
    } else {
      add_numbers(tensor);
    }
  }

  // Adds logits as routers in bf16 have them: some of a token's are equal.
  void add_logits(const TensorPlan& tensor) {
    std::vector<float> logits = normal_floats(tensor);
    for (float& logit : logits)
      logit = reference::float_from_bf16(reference::bf16_from_float(2.0f * logit));
    call_.tensors[tensor.name] = make_topk_probs(tensor.dtype, shape_of(tensor), logits);
  }

  // Returns numbers that a kernel adds to.
  std::vector<int64_t> sums_so_far(const TensorPlan& tensor) const {
    const RandomStream random(seed_of(tensor.name), 0);
    std::vector<int64_t> sums(static_cast<size_t>(element_count(shape_of(tensor))));
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = static_cast<int64_t>(random.below(i, int64_t{1} << 30));
    return sums;
  }

  // Returns a byte for each token and expert; any byte but 0 stands for a choice.
  std::vector<uint8_t> routing_map(const TensorPlan& tensor) const {
    const int64_t experts = tensor.shape[1].value, top_k = plan_.bounds.top_k;
    std::vector<uint8_t> map(static_cast<size_t>(element_count(shape_of(tensor))));
    for (size_t i = 0; i < groups_.ids.size(); ++i)
      if (groups_.ids[i] >= 0)
        map[static_cast<size_t>(static_cast<int64_t>(i) / top_k * experts + groups_.ids[i])] =
            static_cast<uint8_t>(1 + i % 255);
    return map;
  }

  std::vector<float> probs_of(const TensorPlan& tensor) const {
    if (tensor.shape.size() == 2)
      return reference::random_probs(call_.dims.tokens, plan_.bounds.top_k, random_.seed);
    std::vector<float> probs(static_cast<size_t>(call_.dims.rows));
    const std::vector<uint8_t> is_real = reference::real_rows(groups_.route);
    const RandomStream random(seed_of(tensor.name), 0);
    for (size_t row = 0; row < is_real.size(); ++row)
      if (is_real[row] != 0) probs[row] = static_cast<float>(random.uniform(row));
    return probs;
  }

  void add_numbers(const TensorPlan& tensor) {
    if (tensor.dtype == DType::kF32) return put(tensor, normal_floats(tensor));
    if (tensor.dtype == DType::kF8E8M0) return put(tensor, random_bytes(tensor));
    if (tensor.layout == compiler::Layout::kScalesGroups)
      return put(tensor, positive_codes(tensor));
    const TensorPlan* const scales = compiler::find_tensor(plan_, tensor.scale_inv);
    if (const TensorPlan* const zeros = compiler::find_tensor(plan_, "input_zero"))
      return add_four_bit(tensor, *scales, zeros);
    if (tensor.dtype == DType::kF4E2M1x2 && tensor.shape.size() == 3 &&
        scales->dtype == DType::kF8E4M3)
      return add_four_bit(tensor, *scales, nullptr);
    if (tensor.dtype == DType::kBF16) return add_bf16(tensor, scales);
    if (compiler::call_dim(tensor) == CallDim::kColumnBlocks) return add_columns(tensor, *scales);
    if (tensor.dtype == DType::kF8E4M3 && scales->layout != compiler::Layout::kRowMajor)
      return add_quantized(tensor, *scales);
    if (scales->dtype == DType::kF8E8M0 && tensor.dtype == DType::kF4E2M1x2)
      return add_mxfp4(tensor, *scales);
    if (tensor.dtype == DType::kF4E2M1x2) return add_two_levels(tensor, *scales);
    put(tensor, random_codes(tensor));
    put(*scales, random_scales(*scales));
  }

  std::vector<float> normal_floats(const TensorPlan& tensor) const {
    const RandomStream random(seed_of(tensor.name), 0);
    std::vector<float> values(static_cast<size_t>(element_count(shape_of(tensor))));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
    return values;
  }

  // Returns positive numbers: scales that cast normal numbers, and magnitudes.
  std::vector<float> positive_floats(const TensorPlan& tensor) const {
    std::vector<float> values = normal_floats(tensor);
    for (float& value : values) value = 512.0f * std::fabs(value) + 0x1p-20f;
    return values;
  }

  // Returns random E4M3 scales that are neither negative nor NaN.
  std::vector<uint8_t> positive_codes(const TensorPlan& tensor) const {
    std::vector<uint8_t> codes = random_bytes(tensor);
    for (uint8_t& code : codes) code %= 0x7f;
    return codes;
  }

  // Returns random E8M0 scales; 255 is left out, since it is NaN.
  std::vector<uint8_t> random_bytes(const TensorPlan& tensor) const {
    const RandomStream random(seed_of(tensor.name), 0);
    std::vector<uint8_t> bytes(static_cast<size_t>(element_count(shape_of(tensor))));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random.below(i, 255));
    return bytes;
  }

  std::vector<uint16_t> bf16_numbers(const TensorPlan& tensor) const {
    const std::vector<int64_t> shape = shape_of(tensor);
    if (shape.size() == 3)
      return reference::random_weights(shape[0], shape[1], shape[2], seed_of(tensor.name));
    std::vector<uint16_t> values =
        reference::random_activations(shape[0], shape[1], seed_of(tensor.name));
    if (compiler::call_dim(tensor) == CallDim::kColumns) clear_other_columns(values, shape[1]);
    return values;
  }

  // Returns where the rows lie that share the scales of their columns: experts' matrices, or
  // groups.
  reference::TransposeGroups column_groups(const TensorPlan& tensor) const {
    const std::vector<int64_t> shape = shape_of(tensor);
    if (shape.size() < 3)
      return {.counts = groups_.route.counts, .offs = groups_.route.offs, .output_offs = {}};
    reference::TransposeGroups matrices;
    for (int64_t e = 0; e < shape[0]; ++e) {
      matrices.counts.push_back(static_cast<int32_t>(shape[1]));
      matrices.offs.push_back(static_cast<int32_t>(e * shape[1]));
    }
    return matrices;
  }

  // Adds bf16 numbers. If they are cast with known scales, also adds the scales of each column of
  // an expert's rows.
  void add_bf16(const TensorPlan& tensor, const TensorPlan* scales) {
    const std::vector<uint16_t> values = bf16_numbers(tensor);
    put(tensor, values);
    if (scales == nullptr) return;
    put(*scales,
        reference::group_column_scales(values, tensor.shape.back().value, column_groups(tensor)));
  }

  // Clears columns that belong to no token, in values of shape [C, width].
  void clear_other_columns(std::vector<uint16_t>& values, int64_t width) const {
    std::vector<uint8_t> is_real = reference::real_rows(groups_.route);
    is_real.resize(values.size() / static_cast<size_t>(width));
    for (size_t column = 0; column < is_real.size(); ++column)
      if (is_real[column] == 0)
        std::fill_n(values.begin() + static_cast<int64_t>(column) * width, width, uint16_t{0});
  }

  // Adds an operand whose tokens lie as columns, [C/128, rows, 128]. Its scales are for each tile,
  // for each row and 128 of its columns, for each expert, or for each expert's rows.
  void add_columns(const TensorPlan& tensor, const TensorPlan& scales) {
    const int64_t rows = tensor.shape[1].value, columns = call_.dims.columns;
    std::vector<uint16_t> of_tokens =
        reference::random_activations(columns, rows, seed_of(tensor.name));
    clear_other_columns(of_tokens, rows);
    std::vector<uint16_t> values(of_tokens.size());
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t row = 0; row < rows; ++row)
        values[static_cast<size_t>(row * columns + i)] =
            of_tokens[static_cast<size_t>(i * rows + row)];
    std::vector<uint8_t> codes;
    if (scales.layout == compiler::Layout::kRowMajor) {
      codes = reference::cast_bf16(values, 8.0f, fp8_format(tensor.dtype));
      put(scales, random_scales(scales));
    } else if (scales.layout == compiler::Layout::kScalesTiles) {
      reference::QuantizedWeights tiles = reference::quantize_128x128(values, 1, rows, columns, 1);
      put(scales, tiles.scale_inv);
      codes = std::move(tiles.q);
    } else {
      reference::QuantizedRows of_rows = reference::quantize_1x128(values, rows, columns);
      const int64_t blocks = reference::block_count(columns);
      std::vector<float> of_blocks(of_rows.scale_inv.size());
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t block = 0; block < blocks; ++block)
          of_blocks[static_cast<size_t>(block * rows + row)] =
              of_rows.scale_inv[static_cast<size_t>(row * blocks + block)];
      put(scales, of_blocks);
      codes = std::move(of_rows.q);
    }
    put(tensor, columns == 0 ? codes : reference::to_column_blocks(codes, columns));
  }

  void add_quantized(const TensorPlan& tensor, const TensorPlan& scales) {
    const int64_t sections = number_or_one("sections"), sharing = number_or_one("scale_sharing_k");
    const std::vector<int64_t> shape = shape_of(tensor);
    const uint64_t seed = seed_of(tensor.name);
    if (shape.size() == 3) {
      const auto weights =
          reference::quantize_128x128(reference::random_weights(shape[0], shape[1], shape[2], seed),
                                      shape[0], shape[1], shape[2], sections, sharing);
      put(tensor, weights.q);
      return put(scales, weights.scale_inv);
    }
    if (scales.dtype == DType::kF8E8M0) {
      const auto groups = reference::quantize_mx_rows(
          reference::random_activations(shape[0], shape[1], seed), shape[0], shape[1]);
      put(tensor, groups.q);
      return put(scales, groups.scale);
    }
    const auto rows =
        reference::quantize_1x128(reference::random_activations(shape[0], shape[1], seed), shape[0],
                                  shape[1], reference::kActivationEps, sharing);
    put(tensor, rows.q);
    put(scales, rows.scale_inv);
  }

  // Adds rows of E2M1 and the scales of their blocks, with one scale above these for all rows.
  void add_two_levels(const TensorPlan& tensor, const TensorPlan& scales) {
    const int64_t rows = shape_of(tensor)[0], columns = 2 * shape_of(tensor)[1];
    const auto values = reference::random_activations(rows, columns, seed_of(tensor.name));
    const float scale = reference::two_level_expert_scale(reference::amax_of_bf16(values)).scale;
    const auto matrix = reference::quantize_two_levels(values, rows, columns, scale,
                                                       reference::TwoLevelBlocks::kRows);
    put(tensor, reference::packed_row_codes(matrix));
    put(scales, reference::row_scales(matrix));
  }

  // Adds matrices of E2M1 with a scale for 32 of a row.
  void add_mxfp4(const TensorPlan& tensor, const TensorPlan& scales) {
    const auto weights =
        reference::random_mxfp4(element_count(shape_of(scales)), seed_of(tensor.name));
    put(tensor, weights.codes);
    put(scales, weights.scales);
  }

  // Adds matrices in INT4 where there are zero points, else in NVFP4.
  void add_four_bit(const TensorPlan& tensor, const TensorPlan& scales, const TensorPlan* zeros) {
    const auto weights = reference::random_four_bit(
        zeros != nullptr ? reference::FourBitFormat::kInt4 : reference::FourBitFormat::kNvfp4,
        2 * element_count(shape_of(tensor)), seed_of(tensor.name));
    put(tensor, weights.codes);
    if (zeros == nullptr) return put(scales, weights.scales);
    put(scales, weights.row_scales);
    put(*zeros, weights.zeros);
  }

  // Returns codes of normal numbers that span most of the format's range.
  std::vector<uint8_t> random_codes(const TensorPlan& tensor) const {
    const bool is_e5m2 = tensor.dtype == DType::kF8E5M2;
    const RandomStream random(seed_of(tensor.name), 0);
    std::vector<uint8_t> codes(static_cast<size_t>(element_count(shape_of(tensor))));
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto value = static_cast<float>(random.normal(i) * (is_e5m2 ? 4096.0 : 64.0));
      codes[i] = is_e5m2 ? reference::encode_e5m2(value) : reference::encode_e4m3(value);
    }
    return codes;
  }

  // Returns powers of two if each row has a scale for 128 columns, else random positive numbers.
  std::vector<float> random_scales(const TensorPlan& tensor) const {
    const RandomStream random(seed_of(tensor.name), 0);
    std::vector<float> scales(static_cast<size_t>(element_count(shape_of(tensor))));
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = tensor.layout == compiler::Layout::kScalesCompact
                      ? std::ldexp(1.0f, static_cast<int>(random.below(i, 9)) - 12)
                      : static_cast<float>((1.0 + random.uniform(i)) * 0x1p-8);
    return scales;
  }

  // Returns a number of the description that is 1 where it says nothing.
  int64_t number_or_one(std::string_view key) const {
    const auto* const number = compiler::find_field<int64_t>(*plan_.operation, key);
    return number == nullptr ? 1 : *number;
  }

  void add_list(const ListedTensors& list) {
    for (size_t i = 0; i < list.sizes.size(); ++i) {
      const auto& [rows, columns] = list.sizes[i];
      const std::string name = fmt::format("input.{}", i);
      const auto values = reference::random_activations(rows, columns, seed_of(name));
      if (list.spec.input == DType::kBF16) {
        call_.tensors[name] = make_tensor(DType::kBF16, {rows, columns}, values);
      } else {
        std::vector<float> wide;
        for (const uint16_t value : values) wide.push_back(reference::float_from_bf16(value));
        call_.tensors[name] = make_tensor(DType::kF32, {rows, columns}, wide);
      }
      call_.tensors[fmt::format("scale.{}", i)] =
          make_tensor(DType::kF32, {1}, std::vector<float>{1.5f});
    }
  }

  const Plan& plan_;
  RandomInputs random_;
  RandomGroups groups_;
  CallInputs call_;
};

}  // namespace

CallInputs random_operation_call(const Plan& plan, int64_t size, const RandomInputs& random) {
  return RandomCall(plan, size, random).make();
}

}  // namespace moejit::trial
