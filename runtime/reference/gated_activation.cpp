// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moejit::reference {
namespace {

double sigmoid(double value) { return 1.0 / (1.0 + std::exp(-value)); }
double rounded_sigmoid(double value) { return static_cast<float>(sigmoid(value)); }

// Returns the relative error of an activation. A kernel's sigmoid of z is off by at most (1 + |z| /
// 12) * 2^-20, and by |z| * 2^-24 more if z is a rounded product. Each of `products` other
// operations rounds to 2^-24.
double sigmoid_error(double z, int products) {
  return (1.0 + std::fabs(z) / 12.0) * 0x1p-20 + std::fabs(z) * 0x1p-24 + products * 0x1p-24;
}

float rounded(double value) { return static_cast<float>(value); }

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_density(double x) {
  return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

// Return x * sigmoid(alpha * x) and its slope.
double swish(double x, double alpha) { return x * sigmoid(alpha * x); }
double swish_slope(double x, double alpha) {
  const double s = sigmoid(alpha * x);
  return s * (1.0 + alpha * x * (1.0 - s));
}

// Return the smaller or larger of a value and a limit; a NaN value stays NaN.
double at_most(double value, double limit) { return value > limit ? limit : value; }
double at_least(double value, double limit) { return value < limit ? limit : value; }

}  // namespace

GatedActivation swiglu_activation() {
  return {.value = [](double gate, double up) { return gate * sigmoid(gate) * up; },
          .fp32_value =
              [](float gate, float up) {
                const float silu = gate * static_cast<float>(sigmoid(gate));
                return silu * up;
              },
          .gate_gradient =
              [](double gate, double up, double gradient) {
                const double s = rounded_sigmoid(gate);
                const double d = gradient * s;
                return (d * gate * (1.0 - s) + d) * up;
              },
          .up_gradient = [](double gate, double,
                            double gradient) { return gradient * rounded_sigmoid(gate) * gate; },
          .value_error =
              [](double gate, double up) {
                const double relative = (1.0 + std::fabs(gate) / 12.0) * 0x1p-20 + 2 * 0x1p-24;
                return relative * std::fabs(gate * sigmoid(gate) * up);
              }};
}

GatedActivation clamped_swiglu_activation(float limit, float alpha, float offset) {
  const auto right = [=](double up) { return at_least(at_most(up, limit), -limit) + offset; };
  const auto value = [=](double gate, double up) {
    return swish(at_most(gate, limit), alpha) * right(up);
  };
  return {.value = value,
          .fp32_value = [=](float gate, float up) { return rounded(value(gate, up)); },
          .gate_gradient =
              [=](double gate, double up, double gradient) {
                if (gate > limit) return 0.0;
                return gradient * swish_slope(gate, alpha) * right(up);
              },
          .up_gradient =
              [=](double gate, double up, double gradient) {
                if (std::fabs(up) > limit) return 0.0;
                return gradient * swish(at_most(gate, limit), alpha);
              },
          .value_error =
              [=](double gate, double up) {
                return sigmoid_error(alpha * at_most(gate, limit), 3) * std::fabs(value(gate, up));
              }};
}

GatedActivation geglu_activation() {
  const auto value = [](double gate, double up) { return gate * normal_cdf(gate) * up; };
  return {.value = value,
          .fp32_value = [=](float gate, float up) { return rounded(value(gate, up)); },
          .gate_gradient =
              [](double gate, double up, double gradient) {
                return gradient * (normal_cdf(gate) + gate * normal_density(gate)) * up;
              },
          .up_gradient = [](double gate, double,
                            double gradient) { return gradient * gate * normal_cdf(gate); },
          // erfc(z) is off by (2 + z^2 / 4) * 2^-20. Its argument z = gate / sqrt(2) is off by
          // 2^-23, from constant and product, which erfc(z) magnifies at most 2 z^2 + 1 times.
          .value_error =
              [=](double gate, double up) {
                const double relative = (2.0 + gate * gate / 8.0) * 0x1p-20 +
                                        (gate * gate + 1.0) * 0x1p-23 + 3 * 0x1p-24;
                return relative * std::fabs(value(gate, up));
              }};
}

GatedActivation quick_geglu_activation() {
  constexpr double kAlpha = 1.702F;
  const auto value = [](double gate, double up) { return swish(gate, kAlpha) * up; };
  return {
      .value = value,
      .fp32_value = [=](float gate, float up) { return rounded(value(gate, up)); },
      .gate_gradient = [](double gate, double up,
                          double gradient) { return gradient * swish_slope(gate, kAlpha) * up; },
      .up_gradient = [](double gate, double,
                        double gradient) { return gradient * swish(gate, kAlpha); },
      .value_error =
          [=](double gate, double up) {
            return sigmoid_error(kAlpha * gate, 2) * std::fabs(value(gate, up));
          }};
}

GatedActivation relu_squared_activation() {
  const auto relu = [](double x) { return at_least(x, 0.0); };
  const auto value = [=](double, double up) { return relu(up) * relu(up); };
  return {
      .value = value,
      .fp32_value = [=](float gate, float up) { return rounded(value(gate, up)); },
      .gate_gradient = {},
      // At and below the kink the gradient is 0, whatever `gradient` is, as in PyTorch.
      .up_gradient = [=](double, double up,
                         double gradient) { return up <= 0.0 ? 0.0 : gradient * 2.0 * relu(up); },
      // Two products are rounded.
      .value_error = [=](double gate, double up) { return 2 * 0x1p-24 * value(gate, up); },
      .has_gate = false};
}

}  // namespace moejit::reference
