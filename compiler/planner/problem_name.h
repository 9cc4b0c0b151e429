// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>
#include <string>
#include <string_view>
#include <utility>

namespace moejit::compiler {

// Puts together the name of a problem: its kind, then fields that tell problems apart, in one line.
class ProblemName {
 public:
  explicit ProblemName(std::string_view kind) : text_(kind) {}

  template <typename Value>
  void add(std::string_view key, const Value& value) {
    text_ += fmt::format(" {}={}", key, value);
  }
  // Adds a field unless it has the value that most problems have.
  template <typename Value>
  void add_unless(const Value& usual, std::string_view key, const Value& value) {
    if (value != usual) add(key, value);
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace moejit::compiler
