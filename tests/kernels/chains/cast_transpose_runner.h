// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/kernels/chains/chain_runner.h"

#include <optional>
#include <vector>

namespace moejit::testing {

struct CastFormats {
  compiler::DType input = compiler::DType::kBF16;
  compiler::DType output = compiler::DType::kF8E4M3;
};
inline constexpr CastFormats kCastFormats[] = {{compiler::DType::kBF16, compiler::DType::kF8E4M3},
                                               {compiler::DType::kBF16, compiler::DType::kF8E5M2},
                                               {compiler::DType::kF32, compiler::DType::kF8E4M3},
                                               {compiler::DType::kF32, compiler::DType::kF8E5M2}};

// A tensor of a list that is cast.
struct CastTensor {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;  // as the input format has them
  std::optional<float> scale;
  float old_amax = 0.0f;
  // By how much addresses miss a multiple of 16: elements of the input, bytes of the outputs.
  int64_t input_shift = 0, output_shift = 0, colwise_shift = 0;
  bool has_reports = true;  // amax and scale_inv
};
using CastList = std::vector<CastTensor>;

// The nearest value that the input format has.
float exact(float value, compiler::DType input);

// Values of several sizes, and a scale that is no power of two.
CastTensor random_cast_tensor(int64_t rows, int64_t columns, compiler::DType input, uint64_t seed);

struct CastLaunch {
  CastFormats formats;
  int64_t ctas = 5;
  std::vector<uint32_t> skip = {};  // empty, or the word that says whether to
};

// What a launch leaves: the outputs of each tensor, and everything between and around them.
struct CastOutputs {
  struct Tensor {
    std::vector<uint8_t> bytes, colwise;
    float amax = 0.0f, scale_inv = 0.0f;
  };
  std::vector<Tensor> tensors;
  std::vector<uint8_t> arena;
};

// A fixture that casts lists of tensors. Each input is memory of its own, so that the simulator
// sees a read beside it; the outputs share theirs, with guards between them.
class MultiCastTransposeKernel : public Chains {
 protected:
  CastOutputs cast(const CastList& list, const CastLaunch& launch);
  // Every byte of all outputs, and around them, equals the reference.
  void expect_equal(const CastList& list, const CastLaunch& launch);

 private:
  DeviceBuffer upload_values(const CastTensor& tensor, compiler::DType input_type);
};

}  // namespace moejit::testing
