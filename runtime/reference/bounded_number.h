// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <span>

// Arithmetic in double that also bounds, to first order, the errors of the same arithmetic in fp32.
namespace moejit::reference {

inline constexpr double kU = 0x1p-24;  // half a unit in the last place of fp32, relatively

// A number and a bound of the error of a kernel's version of it.
struct Bounded {
  double value = 0.0;
  double error = 0.0;
};

inline Bounded rounded(double value, double error) {
  return {value, error + kU * std::fabs(value)};
}
inline Bounded operator+(const Bounded& a, const Bounded& b) {
  return rounded(a.value + b.value, a.error + b.error);
}
inline Bounded operator-(const Bounded& a, const Bounded& b) {
  return rounded(a.value - b.value, a.error + b.error);
}
inline Bounded operator*(const Bounded& a, const Bounded& b) {
  const double error = (a.error == 0.0 ? 0.0 : a.error * std::fabs(b.value)) +
                       (b.error == 0.0 ? 0.0 : b.error * std::fabs(a.value));
  return rounded(a.value * b.value, error);
}
inline Bounded operator/(const Bounded& a, const Bounded& b) {
  const double quotient = a.value / b.value;
  return rounded(quotient, (a.error + std::fabs(quotient) * b.error) / std::fabs(b.value));
}

// Returns the sum of numbers that a kernel adds up in any order.
inline Bounded sum_of(std::span<const Bounded> values) {
  double sum = 0.0, magnitude = 0.0, error = 0.0;
  for (const Bounded& one : values) {
    sum += one.value;
    magnitude += std::fabs(one.value);
    error += one.error;
  }
  return {sum, error + kU * static_cast<double>(values.size()) * magnitude};
}

}  // namespace moejit::reference
