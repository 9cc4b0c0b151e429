// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <initializer_list>
#include <moejit/moejit.h>
#include <set>
#include <string>
#include <string_view>

namespace moejit::testing {

// EXPECT_TRUE(is_ok(moejit_...()));
inline ::testing::AssertionResult is_ok(moejit_error_code code) {
  if (code == MOEJIT_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << moejit_last_error()->message;
}

// The call failed so, with all of these words in its sentence, and the last error says the same.
template <typename... Words>
::testing::AssertionResult is_error(moejit_error_code code, moejit_error_code wanted,
                                    const Words&... words) {
  const moejit_error& last = *moejit_last_error();
  if (code != wanted || last.code != wanted)
    return ::testing::AssertionFailure()
           << moejit_error_code_name(code) << " (last error " << moejit_error_code_name(last.code)
           << ": " << last.message << "), wanted " << moejit_error_code_name(wanted);
  const std::string message = last.message;
  for (const std::string& word : std::initializer_list<std::string>{words...})
    if (message.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << message << "\" does not say " << word;
  return ::testing::AssertionSuccess();
}

inline constexpr char kTinyLayer[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "dtype": "bf16", "recipe": "fp8_flow", "splits_alignment": 16, "max_tokens": 16,
  "passes": ["forward", "backward"]
})";

// The names of the plan's calls that take a tensor.
inline std::set<std::string> calls_with(const moejit_plan* plan, std::string_view tensor) {
  std::set<std::string> names;
  moejit_call_info call = {};
  call.struct_size = sizeof(call);
  for (std::size_t i = 0; moejit_plan_get_call(plan, i, &call) == MOEJIT_OK; ++i)
    for (std::size_t k = 0; k < call.tensor_count; ++k) {
      moejit_tensor_info info = {};
      info.struct_size = sizeof(info);
      EXPECT_EQ(moejit_plan_get_tensor(plan, call.tensors[k].index, &info), MOEJIT_OK);
      if (info.name == tensor) names.insert(call.name);
    }
  return names;
}

}  // namespace moejit::testing
