// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace moejit::cli {

// Parses JSON that anybody may have written, to be shown. Values nested deeper than any of ours are
// left out, since writing takes stack for each level. Returns a discarded value if the JSON is
// malformed.
inline nlohmann::ordered_json parse_foreign_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) { return depth <= 16; };
  return Json::parse(text, is_shallow, false);
}

}  // namespace moejit::cli
