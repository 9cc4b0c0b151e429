// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <string_view>

namespace moejit::compiler {

// A layer description that is refused, and how.
struct WrongLayer {
  std::string name;
  std::string text;
  ErrorCode code;
  std::string message;    // begins with this
  std::string hint = {};  // contains this
};

inline void PrintTo(const WrongLayer& wrong, std::ostream* out) { *out << wrong.name; }

inline std::string case_name(const testing::TestParamInfo<WrongLayer>& info) {
  return info.param.name;
}

// The tests are in layer_error_test.cpp, their cases there and in other files.
class LayerError : public testing::TestWithParam<WrongLayer> {};

inline constexpr std::string_view kValidLayer =
    R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64})";

// Returns the valid description with the value of `key` replaced, or the key added.
inline std::string with(std::string_view key, std::string_view value) {
  std::string text(kValidLayer);
  const std::string quoted_key = "\"" + std::string(key) + "\": ";
  const std::size_t start = text.find(quoted_key);
  if (start == std::string::npos) {
    text.insert(text.size() - 1, ", " + quoted_key + std::string(value));
    return text;
  }
  const std::size_t value_start = start + quoted_key.size();
  const std::size_t value_end = text.find_first_of(",}", value_start);
  return text.replace(value_start, value_end - value_start, value);
}

}  // namespace moejit::compiler
