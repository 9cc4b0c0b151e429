// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_formula.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <initializer_list>
#include <string_view>

namespace moejit::testing {
namespace {

// Operands are in braces, because C++ evaluates these in order, unlike arguments of a call.
using Operands = std::initializer_list<std::string>;

std::string call(std::string_view function, Operands operands) {
  return fmt::format("{}({})", function, fmt::join(operands, ", "));
}

std::string infix(std::string_view op, Operands operands) {
  return fmt::format("({})", fmt::join(operands, fmt::format(" {} ", op)));
}

class FormulaMaker {
 public:
  FormulaMaker(SeededRandom& random, bool is_tame) : random_(random), is_tame_(is_tame) {}

  // Returns a formula that nests at most `depth` operations.
  std::string make(int64_t depth) {
    if (depth <= 0 || random_.in_percent(15)) return leaf();
    const int64_t deeper = depth - 1;
    switch (random_.between(0, is_tame_ ? 7 : 9)) {
      case 0:
      case 1: return call_of(function_of_one(), deeper);
      case 2: return infix("+", {make(deeper), make(deeper)});
      case 3: return infix("-", {make(deeper), make(deeper)});
      case 4: return infix("*", {factor(deeper), factor(deeper)});
      case 5: return call("min", {make(deeper), make(deeper)});
      case 6: return call("max", {make(deeper), make(deeper)});
      case 7: return choice(deeper);
      case 8: return infix("/", {make(deeper), make(deeper)});
      default: return call("fma", {make(deeper), make(deeper), make(deeper)});
    }
  }

 private:
  std::string leaf() {
    const int64_t kind = random_.between(0, 9);
    return kind < 4 ? "gate" : kind < 8 ? "up" : number();
  }
  std::string number() {
    constexpr const char* kNumbers[] = {"0.5", "1", "2", "1.702", "0.1", "3e-1", "7"};
    return random_.pick(kNumbers);
  }

  // Returns a factor. In tame formulas products stay small: a factor is a leaf, or a function with
  // values between -1 and 1.
  std::string factor(int64_t depth) {
    constexpr const char* kBounded[] = {"sigmoid", "tanh", "erf"};
    if (!is_tame_) return make(depth);
    if (random_.in_percent(30)) return leaf();
    return call_of(random_.pick(kBounded), depth);
  }

  std::string call_of(const std::string& function, int64_t depth) {
    return call(function, {make(depth)});
  }

  std::string function_of_one() {
    constexpr const char* kTame[] = {"sigmoid", "silu", "gelu", "gelu_tanh", "quick_gelu",
                                     "tanh",    "relu", "abs",  "erf"};
    constexpr const char* kWild[] = {"exp", "log", "sqrt", "erfc"};
    const bool is_wild = !is_tame_ && random_.in_percent(30);
    return is_wild ? random_.pick(kWild) : random_.pick(kTame);
  }

  std::string choice(int64_t depth) {
    if (random_.in_percent(50)) {
      const std::string limit = number();
      return call("clamp", {make(depth), "-" + limit, limit});
    }
    constexpr const char* kComparisons[] = {"<", "<=", ">", ">="};
    const std::string left = leaf();
    const std::string comparison = random_.pick(kComparisons);
    const std::string condition = fmt::format("{} {} {}", left, comparison, leaf());
    return call("where", {condition, make(depth), make(depth)});
  }

  SeededRandom& random_;
  bool is_tame_;
};

}  // namespace

std::string random_formula(SeededRandom& random, bool is_tame) {
  constexpr std::size_t kLongest = 1000;
  FormulaMaker maker(random, is_tame);
  const int64_t depth = random.between(1, is_tame ? 3 : 5);
  const bool has_gate = random.in_percent(85);
  std::string formula = maker.make(depth);
  for (int64_t less = depth; formula.size() > kLongest / 2; --less) formula = maker.make(less - 1);
  // Half of the formulas are a function of gate times up, as people write them.
  if (random.in_percent(50)) return fmt::format("({}) * {}", formula, has_gate ? "up" : "relu(up)");
  return fmt::format("{} + {}", formula, has_gate ? "gate * up" : "up");
}

}  // namespace moejit::testing
