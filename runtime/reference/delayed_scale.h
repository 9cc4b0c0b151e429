// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// Scales that follow from the largest magnitudes of the steps before, as Transformer Engine's
// delayed scaling has them.
namespace moejit::reference {

// The state of some tensors, which are its columns.
struct ScaleState {
  std::int64_t columns = 0;
  std::vector<float> amax_history;  // [L, columns]; casts of this step raise row 0
  std::vector<float> scale;         // [columns]
};

struct DelayedRule {
  float largest = 448.0F;       // the format's largest number times 2^-margin
  bool is_most_recent = false;  // whether only this step counts
};

// Raises the largest magnitude of a column in this step; NaN counts as nothing.
void record_amax(ScaleState& state, std::int64_t column, float amax);

// Ends a step. Columns without a record stay as they are. The others lose their oldest magnitude
// and get a scale, unless the magnitude behind the scale is infinite.
void update_scales(ScaleState& state, const DelayedRule& rule);

}  // namespace moejit::reference
