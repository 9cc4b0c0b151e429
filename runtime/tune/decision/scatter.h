// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace moejit::tune {

// By how much ratios scatter, from how far each is from the one before it. Ratios of many
// candidates go into one figure. So two rounds of twenty say about as much as forty of one, and
// neither a candidate's speed nor a slow drift counts.
class Scatter {
 public:
  // Adds two ratios of one candidate, of two rounds in a row.
  void add(double before, double after);

  // Returns the standard deviation that normally distributed ratios with these steps have, as a
  // share of the ratios; infinite without a step. It goes by the median of the steps, so that a few
  // wild ones do not count.
  double deviation() const;

 private:
  std::vector<double> steps_;  // sizes of the logarithms
};

}  // namespace moejit::tune
