// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace moejit::cli {

// JSON that anybody may have written, to be shown: what is deeper than any of ours is left out,
// since writing it takes stack for each level. Discarded where it is malformed.
inline nlohmann::ordered_json parse_foreign_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) { return depth <= 16; };
  return Json::parse(text, is_shallow, false);
}

}  // namespace moejit::cli
