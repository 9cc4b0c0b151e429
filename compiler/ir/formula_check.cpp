// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/formula_check.h"

#include "compiler/ir/formula_ir.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace moejit::ir {
namespace {

using compiler::Expression;
using compiler::NamedFormula;
using compiler::StraightLine;
using Place = std::vector<double>;

constexpr int kPairs = 100000;
// The bound of evaluate_with_error() is of fp32: 2^29 times what double gives.
constexpr double kDoubleError = 0x1p-29;
double bf16_of(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

std::vector<Place> all_numbers() {
  std::vector<Place> places;
  for (uint32_t bits = 0; bits < 0x7f80U; ++bits)
    for (const uint32_t sign : {0U, 0x8000U}) places.push_back({bf16_of(bits | sign)});
  return places;
}

// Three quarters have the size of activations, and others any size.
std::vector<Place> pairs() {
  std::mt19937_64 random(7);
  std::normal_distribution<double> usual(0.0, 3.0);
  const auto rounded = [](double x) {
    return bf16_of(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16);
  };
  const auto any = [&] {
    const auto bits = static_cast<uint32_t>(random() % 0x7f80U);
    return bf16_of(bits | (random() % 2 == 0 ? 0U : 0x8000U));
  };
  std::vector<Place> places;
  for (int i = 0; i < kPairs; ++i)
    places.push_back(i % 4 == 0 ? Place{any(), any()}
                                : Place{rounded(usual(random)), rounded(usual(random))});
  return places;
}

void note(PartCheck& check, const Place& place, double got, double wanted, double allowed) {
  if (!std::isfinite(got) || !std::isfinite(wanted) || !std::isfinite(allowed)) return;
  ++check.places;
  const double ratio = got == wanted ? 0.0 : std::fabs(got - wanted) / allowed;
  if (check.places > 1 && ratio <= check.worst.ratio) return;
  check.worst = {
      .variables = place, .got = got, .wanted = wanted, .allowed = allowed, .ratio = ratio};
  check.has_passed = ratio <= 1.0;
}

class Checker {
 public:
  Checker(std::span<const NamedFormula> parts, const std::vector<std::string>& variables,
          StraightLine value, CompiledFormula in_float, CompiledFormula in_double)
      : variables_(variables),
        value_(std::move(value)),
        in_float_(std::move(in_float)),
        in_double_(std::move(in_double)) {
    for (const NamedFormula& part : parts) checks_.push_back({.name = part.name, .worst = {}});
    steps_ = value_;
    steps_.results.resize(steps_.assignments.size());
    std::iota(steps_.results.begin(), steps_.results.end(), 0);
  }

  std::vector<PartCheck> run() {
    for (const Place& place : variables_.size() == 1 ? all_numbers() : pairs()) {
      const auto bounded = evaluate_with_error(value_, named(place));
      if (is_normal_in_float(place))
        note(checks_.front(), place, in_float_(place).front(), bounded.value, 2.0 * bounded.error);
      const std::vector<double> parts = in_double_(place);
      for (std::size_t i = 0; i < place.size(); ++i)
        check_slope(place, i, parts.front(), parts[i + 1], bounded.error * kDoubleError);
    }
    return std::move(checks_);
  }

 private:
  compiler::Values named(const Place& place) const {
    compiler::Values values;
    for (std::size_t i = 0; i < place.size(); ++i) values[variables_[i]] = place[i];
    return values;
  }

  // The bound of the value counts where no step overflows or is below the normal numbers of fp32.
  bool is_normal_in_float(const Place& place) const {
    return std::ranges::all_of(evaluate(steps_, named(place)), [](double step) {
      const double size = std::fabs(step);
      return size == 0.0 || (size >= 0x1p-126 && size < 0x1p128);
    });
  }

  double value_at(Place place, std::size_t variable, double step) const {
    place[variable] += step;
    return in_double_(place).front();
  }

  // `here` is the value, which may be off by `value_error`. Around the place it is about as much.
  void check_slope(const Place& place, std::size_t variable, double here, double got,
                   double value_error) {
    // Relative, so that 0 is never crossed: many formulas have a kink or a pole there.
    const double size = std::fabs(place[variable]);
    const double step = size == 0.0 ? 0x1p-17 : std::exp2(std::floor(std::log2(size))) * 0x1p-17;
    const double above = value_at(place, variable, step), below = value_at(place, variable, -step);
    const double wide =
        (value_at(place, variable, 2.0 * step) - value_at(place, variable, -2.0 * step)) /
        (4.0 * step);
    const double central = (above - below) / (2.0 * step);
    const double allowed = std::fabs((above - here) - (here - below)) / step +
                           2.0 * std::fabs(central - wide) +
                           8.0 * (value_error + 0x1p-53 * std::fabs(here)) / step + 0x1p-900;
    note(checks_[variable + 1], place, got, central, allowed);
  }

  const std::vector<std::string>& variables_;
  StraightLine value_, steps_;  // steps_ has the result of each assignment
  CompiledFormula in_float_, in_double_;
  std::vector<PartCheck> checks_;
};

}  // namespace

Result<std::vector<PartCheck>> check_formula(std::span<const NamedFormula> parts,
                                             const std::vector<std::string>& variables) {
  std::vector<Expression> all;
  for (const NamedFormula& part : parts) all.push_back(part.formula);
  const StraightLine value = compiler::straight_line({&parts.front().formula, 1});
  MOEJIT_TRY_ASSIGN(CompiledFormula in_float,
                    CompiledFormula::compile(value, variables, Number::kFloat));
  MOEJIT_TRY_ASSIGN(
      CompiledFormula in_double,
      CompiledFormula::compile(compiler::straight_line(all), variables, Number::kDouble));
  return Checker(parts, variables, value, std::move(in_float), std::move(in_double)).run();
}

}  // namespace moejit::ir
