// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace moejit::tune {

// Tells how much ratios scatter, by how far each is from the one before it. Ratios of many
// candidates go into one figure, so two rounds of twenty say about as much as forty of one. Neither
// a candidate's speed nor a slow drift counts.
class Scatter {
 public:
  // Adds a step between two ratios of one candidate, from two rounds in a row.
  void add(double before, double after);

  // Returns the standard deviation, as a share of the ratios, of normally distributed ratios with
  // these steps. Infinite without a step. It uses the median of the steps, so a few wild steps do
  // not count.
  double deviation() const;

 private:
  std::vector<double> steps_;  // absolute differences of the ratios' logarithms
};

}  // namespace moejit::tune
