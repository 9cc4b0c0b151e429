// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/scatter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

namespace moejit::tune {
namespace {

// Half of all normally distributed values lie within this many standard deviations of their mean.
constexpr double kMedianDeviation = 0.67448975;

}  // namespace

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
