// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/step_line.h"

#include "runtime/tune/decision/race.h"

#include <array>
#include <fmt/core.h>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace moejit::tune {
namespace {

using compiler::read_choices;
using compiler::to_json;

constexpr IntRange kStepRounds{.lowest = 1, .highest = std::numeric_limits<int32_t>::max()};

Json two_times(double first_us, double last_us) {
  Json times = Json::array();
  times.push_back(json_number(first_us));
  times.push_back(json_number(last_us));
  return times;
}

Result<std::array<double, 2>> read_two_times(const JsonView& root, std::string_view key) {
  MOEJIT_TRY_ASSIGN(const JsonView view, root.at(key));
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  if (elements.size() != 2)
    return view.fail(ErrorCode::kInvalidValue,
                     fmt::format("got {} times, wanted 2", elements.size()));
  std::array<double, 2> times{};
  MOEJIT_TRY_ASSIGN(times[0], read_time_us(elements[0]));
  MOEJIT_TRY_ASSIGN(times[1], read_time_us(elements[1]));
  return times;
}

Result<StepChoice> read_choice(const JsonView& view) {
  StepChoice choice;
  MOEJIT_TRY_ASSIGN(choice.problem, view.read_string_at("problem"));
  MOEJIT_TRY_ASSIGN(const JsonView choices, view.at("choices"));
  MOEJIT_TRY_ASSIGN(choice.choices, read_choices(choices));
  if (view.find("text_digest")) {
    MOEJIT_TRY_ASSIGN(choice.text_digest, view.read_string_at("text_digest"));
  }
  MOEJIT_TRY_ASSIGN(const JsonView certainty, view.at("certainty"));
  MOEJIT_TRY_ASSIGN(choice.certainty, certainty.read_number());
  if (choice.certainty >= 0.0 && choice.certainty <= 1.0) return choice;
  return certainty.fail(ErrorCode::kInvalidValue,
                        fmt::format("got {}, wanted 0 to 1", certainty.got()));
}

}  // namespace

void put(Json& line, const StepList& list) {
  Json choices = Json::array();
  for (const StepChoice& choice : list.choices) {
    Json json = {{"problem", choice.problem}, {"choices", to_json(choice.choices)}};
    if (!choice.text_digest.empty()) json["text_digest"] = choice.text_digest;
    json["certainty"] = json_number(choice.certainty);
    choices.push_back(std::move(json));
  }
  line["step_choices"] = std::move(choices);
}

void put(Json& line, const StepRound& round) {
  const StepTimes& times = round.times;
  line["step_round"] = round.round;
  line["set"] = round.set;
  line["default_microseconds"] = two_times(times.default_first_us, times.default_last_us);
  line["tuned_microseconds"] = two_times(times.tuned_first_us, times.tuned_last_us);
  if (round.megahertz) line["megahertz"] = json_number(*round.megahertz);
  if (round.watts) line["watts"] = json_number(*round.watts);
}

Result<Event> read_step_list(const JsonView& choices) {
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, choices.read_array());
  StepList list;
  std::set<std::string> problems;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(StepChoice choice, read_choice(element));
    if (!problems.insert(choice.problem).second)
      return element.fail(ErrorCode::kInvalidValue, fmt::format("got {} again, wanted each problem "
                                                                "once",
                                                                quote_for_message(choice.problem)));
    list.choices.push_back(std::move(choice));
  }
  return list;
}

Result<Event> read_step_round(const JsonView& root, const JsonView& number) {
  StepRound round;
  MOEJIT_TRY_ASSIGN(const int64_t round_number, number.read_int(kStepRounds));
  round.round = static_cast<int32_t>(round_number);
  MOEJIT_TRY_ASSIGN(round.set, root.read_string_at("set"));
  MOEJIT_TRY_ASSIGN(const auto usual, read_two_times(root, "default_microseconds"));
  MOEJIT_TRY_ASSIGN(const auto tuned, read_two_times(root, "tuned_microseconds"));
  round.times = {.default_first_us = usual[0],
                 .tuned_first_us = tuned[0],
                 .tuned_last_us = tuned[1],
                 .default_last_us = usual[1]};
  MOEJIT_TRY_ASSIGN(round.megahertz, read_reading(root, "megahertz"));
  MOEJIT_TRY_ASSIGN(round.watts, read_reading(root, "watts"));
  return round;
}

Result<double> read_time_us(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const double us, view.read_number());
  if (is_time_us(us)) return us;
  return view.fail(ErrorCode::kInvalidValue,
                   fmt::format("got {}, wanted {} to {}", view.got(), kShortestUs, kLongestUs));
}

Result<std::optional<double>> read_reading(const JsonView& root, std::string_view key) {
  const std::optional<JsonView> view = root.find(key);
  if (!view) return std::nullopt;
  MOEJIT_TRY_ASSIGN(const double value, view->read_number());
  return value;
}

}  // namespace moejit::tune
