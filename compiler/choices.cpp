// SPDX-License-Identifier: Apache-2.0
#include "compiler/choices.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const Choices& choices) {
  std::string text;
  for (const auto& [knob, value] : choices)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", knob, value);
  return text;
}

Json to_json(const Choices& choices) {
  Json json = Json::object();
  for (const auto& [knob, value] : choices) json[knob] = value;
  return json;
}

}  // namespace moejit::compiler
