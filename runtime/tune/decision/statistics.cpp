// SPDX-License-Identifier: Apache-2.0
// The interval turns the sign test around (W. R. Thompson, "On confidence ranges for the median",
// Annals of Mathematical Statistics 7, 1936). A value lies below the median with probability 1/2,
// so how many of n values do is binomial, B(n, 1/2). The median is below the k-th smallest value
// exactly if fewer than k values are below it, which has the probability P(B < k). It is above the
// k-th largest with the same probability. The largest k for which each is at most 2.5 % gives the
// narrowest interval of 95 %. For n = 6 it goes from the first to the last value (96.9 %), for n =
// 16 from the 4th to the 13th (97.9 %).
#include "runtime/tune/decision/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

namespace moejit::tune {
namespace {

constexpr double kTail = 0.025;  // outside of the interval, on each side
// Half of all normally distributed values lie within this many standard deviations of their mean.
constexpr double kMedianDeviation = 0.67448975;

}  // namespace

int32_t rank_of_bound(int32_t count) {
  double logarithm = -count * std::numbers::ln2;  // of P(B = rank), which may underflow
  double tail = std::exp(logarithm);              // P(B <= rank)
  int32_t rank = 0;
  while (rank < count && tail <= kTail) {
    ++rank;
    logarithm += std::log(static_cast<double>(count - rank + 1) / rank);
    tail += std::exp(logarithm);
  }
  return rank;
}

MedianInterval median_interval(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const std::size_t count = values.size();
  MedianInterval result;
  result.median =
      count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
  const auto rank = static_cast<std::size_t>(rank_of_bound(static_cast<int32_t>(count)));
  if (rank == 0) return result;
  result.low = values[rank - 1];
  result.high = values[count - rank];
  return result;
}

void Scatter::add(double before, double after) {
  steps_.push_back(std::abs(std::log(after / before)));
}

double Scatter::deviation() const {
  if (steps_.empty()) return std::numeric_limits<double>::infinity();
  std::vector<double> steps = steps_;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::ranges::nth_element(steps, middle);
  // A step is the difference of two values, whose variances add up.
  return *middle / (kMedianDeviation * std::numbers::sqrt2);
}

}  // namespace moejit::tune
