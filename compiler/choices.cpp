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

Result<Choices> read_choices(const JsonView& view) {
  constexpr IntRange kValues{.lowest = 0, .highest = int64_t{1} << 40};
  Choices choices;
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> members, view.read_members());
  for (const JsonView& member : members) {
    MOEJIT_TRY_ASSIGN(choices[std::string(member.key())], member.read_int(kValues));
  }
  return choices;
}

}  // namespace moejit::compiler
