// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/transpose.h"
#include "tests/kernels/chains/chain_runner.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace moejit::testing {

// The inputs of a gated activation's gradient, in groups aligned to 16 rows. What pad rows and the
// rows behind hold is NaN.
struct GatedGradientInputs {
  int64_t columns = 0;
  int64_t rows = 0;  // with three that belong to no group
  compiler::Activation activation;
  reference::TransposeGroups groups;
  std::vector<uint16_t> h1, dact;
  std::vector<float> probs;

  int64_t pitch() const { return reference::block_count(columns) * 128; }
  int64_t owned() const { return groups.offs.back(); }
  int64_t output_columns() const { return groups.output_offs.back() + 128; }
};

inline GatedGradientInputs random_gated_gradient(const std::vector<int32_t>& counts,
                                                 int64_t columns) {
  GatedGradientInputs in{.columns = columns,
                         .groups = {.counts = counts, .offs = {0}, .output_offs = {0}}};
  for (const int32_t count : counts) {
    in.groups.offs.push_back(in.groups.offs.back() + (count + 15) / 16 * 16);
    in.groups.output_offs.push_back(in.groups.output_offs.back() + (count + 127) / 128 * 128);
  }
  in.rows = in.owned() + 3;
  in.h1 = reference::random_activations(in.rows, 2 * columns, 1);
  in.dact = reference::random_activations(in.rows, columns, 2);
  in.probs = reference::random_probs(in.rows, 8, 3);
  in.probs.resize(static_cast<size_t>(in.rows));
  std::vector<bool> is_real(static_cast<size_t>(in.rows));
  for (size_t e = 0; e < counts.size(); ++e)
    std::fill_n(is_real.begin() + in.groups.offs[e], counts[e], true);
  const uint16_t nan = reference::bf16_from_float(std::numeric_limits<float>::quiet_NaN());
  for (int64_t row = 0; row < in.rows; ++row) {
    if (is_real[static_cast<size_t>(row)]) continue;
    std::fill_n(in.h1.begin() + row * 2 * columns, 2 * columns, nan);
    std::fill_n(in.dact.begin() + row * columns, columns, nan);
    in.probs[static_cast<size_t>(row)] = std::numeric_limits<float>::quiet_NaN();
  }
  return in;
}

// The inputs in a device's memory.
struct UploadedGatedGradient {
  template <typename MakeInput>
  UploadedGatedGradient(const GatedGradientInputs& in, const MakeInput& make)
      : h1(make("h1", in.h1)),
        dact(make("dact", in.dact)),
        probs(make("permuted_probs", in.probs)),
        counts(make("counts", in.groups.counts)),
        offs(make("offs", in.groups.offs)) {}
  DeviceBuffer h1, dact, probs, counts, offs;
};

// Groups without rows, and pad rows. Other counts are as many, since the number of groups and the
// columns make a kernel of their own.
inline const std::vector<int32_t> kGatedGradientCounts{0, 3, 17, 0, 130, 1, 0};
inline const std::vector<int32_t> kEmptyGatedGradientCounts(kGatedGradientCounts.size());

}  // namespace moejit::testing
