// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/scaled_dot.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/sum_error.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moejit::reference {
namespace {

std::array<double, 256> all_e4m3_values() {
  std::array<double, 256> values{};
  for (int code = 0; code < 256; ++code)
    values[code] = decode_e4m3(static_cast<std::uint8_t>(code));
  return values;
}

}  // namespace

void decode(const std::uint8_t* codes, std::int64_t count, double* out) {
  static const std::array<double, 256> kValues = all_e4m3_values();
  for (std::int64_t i = 0; i < count; ++i) out[i] = kValues[codes[i]];
}

float dot_in_kernel_order(const ScaledDot& dot, std::int64_t blocks) {
  float sum = 0.0F;
  for (std::int64_t block = 0; block < block_count(dot.length); block += blocks) {
    const std::int64_t end = std::min((block + blocks) * kBlock, dot.length);
    double partial = 0.0;
    for (std::int64_t k = block * kBlock; k < end; ++k) partial += dot.a[k] * dot.b[k];
    const float scale = dot.a_scales[block] * dot.b_scales[block];
    sum = std::fma(static_cast<float>(partial), scale, sum);
  }
  return sum;
}

namespace {

// The error of a chain of promotions: p * scale added to a running sum with one fma each.
class PromotedSum {
 public:
  // Adds a term. Besides the partial sum's error there are p rounded to fp32 and the product of the
  // scales rounded to fp32 (2 * 2^-24 of the term; the second adds nothing if scales are powers of
  // two), the fma's rounding (2^-24 of the running sum), and fp32 underflow of the scales' product
  // or the sum.
  void add(double partial, double partial_error, double scale) {
    value_ += partial * scale;
    error_ += partial_error * scale + 0x1p-23 * (std::fabs(partial) + partial_error) * scale;
    error_ += 0x1p-24 * (std::fabs(value_) + error_);
    error_ += 0x1p-149 * (1.0 + std::fabs(partial));
  }
  double bound() const { return error_; }
  double value() const { return value_; }

 private:
  double value_ = 0.0;
  double error_ = 0.0;
};

}  // namespace

ExactDot dot_exact(const ScaledDot& dot, std::int64_t blocks) {
  ExactDot result;
  PromotedSum tensor_core;
  PromotedSum fp32;
  for (std::int64_t block = 0; block < block_count(dot.length); block += blocks) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t end = std::min(begin + blocks * kBlock, dot.length);
    const double scale = static_cast<double>(dot.a_scales[block]) * dot.b_scales[block];
    double partial = 0.0;
    double magnitude = 0.0;
    for (std::int64_t k = begin; k < end; ++k) {
      partial += dot.a[k] * dot.b[k];
      magnitude += std::fabs(dot.a[k] * dot.b[k]);
    }
    result.magnitude += magnitude * scale;
    tensor_core.add(partial, partial_sum_error(dot.a + begin, dot.b + begin, end - begin), scale);
    fp32.add(partial, fp32_sum_error(magnitude, end - begin), scale);
  }
  result.value = tensor_core.value();
  result.bound = tensor_core.bound();
  result.fp32_bound = fp32.bound();
  return result;
}

double with_bf16_rounding(double bound, double value) {
  return bound + 0x1p-8 * (std::fabs(value) + bound) + 0x1p-134;
}

}  // namespace moejit::reference
