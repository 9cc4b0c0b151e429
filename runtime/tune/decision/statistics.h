// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace moejit::tune {

// Fewest values whose median has a 95 % confidence interval. With fewer, all values lie on the same
// side of the median too often.
constexpr int32_t kFewestForInterval = 6;

// The median of some values, and an interval for the median of their distribution. The interval
// holds that median in at least 95 % of all cases. Values are assumed independent and alike, of any
// distribution.
struct MedianInterval {
  double median = 0.0;  // the mean of the middle two if their number is even; 0 without values
  double low = 0.0;
  double high = std::numeric_limits<double>::infinity();

  bool operator==(const MedianInterval&) const = default;
};

// Returns k, from 1, so that the k-th smallest and the k-th largest of `count` values bound the
// interval; 0 for fewer than kFewestForInterval values.
int32_t rank_of_bound(int32_t count);

// Returns the median of positive values and its interval, (0, infinity) where rank_of_bound() is 0.
MedianInterval median_interval(std::vector<double> values);

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
