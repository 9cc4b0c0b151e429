// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/journal_line.h"

#include "compiler/support/json_text.h"
#include "compiler/support/json_view.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <limits>

namespace moejit::tune {
namespace {

using compiler::Choices;
using compiler::read_choices;
using compiler::to_json;

constexpr std::array kPlaces = {Place::kDefaultFirst, Place::kCandidate, Place::kDefaultLast};
constexpr IntRange kRounds{.lowest = 1, .highest = std::numeric_limits<int32_t>::max()};

Result<Json> object_of(std::string_view text, std::string_view key) {
  MOEJIT_TRY_ASSIGN(JsonDocument document,
                    parse_json(text, {.source_name = key, .max_bytes = kMostLineBytes}));
  MOEJIT_TRY(JsonView(document).check_object());
  return Json(std::move(document.root));
}

void put(Json& line, const CandidateList& list) {
  Json candidates = Json::array();
  for (const Choices& choices : list.candidates) candidates.push_back(to_json(choices));
  line["candidates"] = std::move(candidates);
  if (!list.text_digests.empty()) line["text_digests"] = list.text_digests;
  if (list.estimated_share) line["estimated_share"] = json_number(*list.estimated_share);
}

void put(Json& line, const Block& block) {
  line["round"] = block.round;
  line["place"] = to_string(block.place);
  line["choices"] = to_json(block.choices);
  line["microseconds"] = json_number(block.microseconds);
  if (block.megahertz) line["megahertz"] = json_number(*block.megahertz);
  if (block.watts) line["watts"] = json_number(*block.watts);
}

void put(Json& line, const FoundFault& found) {
  line["choices"] = to_json(found.choices);
  line["fault"] = to_string(found.fault);
  line["detail"] = std::string_view(found.detail).substr(0, kMostDetailBytes);
}

Result<std::string> read_object_text(const JsonView& root, std::string_view key) {
  const std::optional<JsonView> member = root.find(key);
  if (!member) return "{}";
  MOEJIT_TRY(member->check_object());
  return Json(member->value()).dump();
}

Result<Session> read_session(const JsonView& root) {
  MOEJIT_TRY_ASSIGN(const JsonView format_view, root.at("journal"));
  MOEJIT_TRY_ASSIGN(const std::string format, format_view.read_string());
  if (format != kJournalFormat)
    return format_view.fail(ErrorCode::kUnsupported,
                            fmt::format("got {}, wanted \"{}\"", format_view.got(), kJournalFormat),
                            "read the journal with the version of moejit that wrote it");
  MOEJIT_TRY_ASSIGN(std::string id, root.read_string_at("session"));
  MOEJIT_TRY_ASSIGN(std::string gpu, read_object_text(root, "gpu"));
  MOEJIT_TRY_ASSIGN(std::string context, read_object_text(root, "context"));
  return Session{std::move(id), std::move(gpu), std::move(context)};
}

Result<Choices> read_choices_of(const JsonView& root) {
  MOEJIT_TRY_ASSIGN(const JsonView view, root.at("choices"));
  return read_choices(view);
}

Result<std::vector<std::string>> read_digests(const JsonView& view, std::size_t candidates) {
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  std::vector<std::string> digests;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(digests.emplace_back(), element.read_string());
  }
  if (digests.size() != candidates)
    return view.fail(ErrorCode::kInvalidValue,
                     fmt::format("got {} digests for {} candidates", digests.size(), candidates));
  return digests;
}

Result<double> read_share(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const double share, view.read_number());
  if (share < 0.0 || share > 1.0)
    return view.fail(ErrorCode::kInvalidValue, fmt::format("got {}, wanted 0 to 1", view.got()));
  return share;
}

Result<Event> read_list(const JsonView& root, const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  if (elements.empty())
    return view.fail(ErrorCode::kInvalidValue, "got no candidate, wanted the default at least");
  CandidateList list;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(Choices choices, read_choices(element));
    if (std::ranges::find(list.candidates, choices) != list.candidates.end())
      return element.fail(ErrorCode::kInvalidValue,
                          fmt::format("got {} again, wanted each candidate once",
                                      quote_for_message(compiler::to_string(choices))));
    list.candidates.push_back(std::move(choices));
  }
  if (const std::optional<JsonView> digests = root.find("text_digests")) {
    MOEJIT_TRY_ASSIGN(list.text_digests, read_digests(*digests, elements.size()));
  }
  if (const std::optional<JsonView> share = root.find("estimated_share")) {
    MOEJIT_TRY_ASSIGN(list.estimated_share, read_share(*share));
  }
  return list;
}

Result<Place> read_place(const JsonView& root) {
  std::array<std::string_view, kPlaces.size()> names;
  std::ranges::transform(kPlaces, names.begin(), [](Place place) { return to_string(place); });
  MOEJIT_TRY_ASSIGN(const JsonView view, root.at("place"));
  MOEJIT_TRY_ASSIGN(const std::size_t index, view.read_choice(names));
  return kPlaces[index];
}

Result<double> read_time_us(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const double us, view.read_number());
  if (is_time_us(us)) return us;
  return view.fail(ErrorCode::kInvalidValue,
                   fmt::format("got {}, wanted {} to {}", view.got(), kShortestUs, kLongestUs));
}

// Reads a number that a GPU told; none if the member is missing.
Result<std::optional<double>> read_reading(const JsonView& root, std::string_view key) {
  const std::optional<JsonView> view = root.find(key);
  if (!view) return std::nullopt;
  MOEJIT_TRY_ASSIGN(const double value, view->read_number());
  return value;
}

Result<Event> read_block(const JsonView& root, const JsonView& time) {
  Block block;
  MOEJIT_TRY_ASSIGN(const JsonView round, root.at("round"));
  MOEJIT_TRY_ASSIGN(const int64_t round_number, round.read_int(kRounds));
  block.round = static_cast<int32_t>(round_number);
  MOEJIT_TRY_ASSIGN(block.place, read_place(root));
  MOEJIT_TRY_ASSIGN(block.choices, read_choices_of(root));
  MOEJIT_TRY_ASSIGN(block.microseconds, read_time_us(time));
  MOEJIT_TRY_ASSIGN(block.megahertz, read_reading(root, "megahertz"));
  MOEJIT_TRY_ASSIGN(block.watts, read_reading(root, "watts"));
  return block;
}

Result<Event> read_fault(const JsonView& root, const JsonView& name_view) {
  FoundFault found;
  MOEJIT_TRY_ASSIGN(found.choices, read_choices_of(root));
  MOEJIT_TRY_ASSIGN(const std::string name, name_view.read_string());
  const std::optional<Fault> fault = fault_named(name);
  if (!fault)
    return name_view.fail(ErrorCode::kInvalidValue,
                          fmt::format("got {}, wanted the name of a fault such as \"{}\"",
                                      name_view.got(), to_string(Fault::kChangesBits)));
  found.fault = *fault;
  if (const std::optional<JsonView> detail = root.find("detail")) {
    MOEJIT_TRY_ASSIGN(found.detail, detail->read_string());
  }
  return found;
}

Result<Event> read_event(const JsonView& root) {
  if (const auto list = root.find("candidates")) return read_list(root, *list);
  if (const auto fault = root.find("fault")) return read_fault(root, *fault);
  MOEJIT_TRY_ASSIGN(const JsonView time, root.at("microseconds"));
  return read_block(root, time);
}

void set_line(JsonValue& value, int32_t line) {
  value.line = line;
  for (JsonValue& element : value.elements) set_line(element, line);
  for (JsonMember& member : value.members) set_line(member.value, line);
}

}  // namespace

std::string_view to_string(Place place) {
  switch (place) {
    case Place::kDefaultFirst: return "default_first";
    case Place::kCandidate: return "candidate";
    case Place::kDefaultLast: return "default_last";
  }
  return "unknown";
}

Result<std::string> text_of(const Session& session) {
  MOEJIT_TRY_ASSIGN(Json gpu, object_of(session.gpu, "gpu"));
  MOEJIT_TRY_ASSIGN(Json context, object_of(session.context, "context"));
  return Json{{"journal", kJournalFormat},
              {"session", session.id},
              {"gpu", std::move(gpu)},
              {"context", std::move(context)}}
      .dump();
}

std::string text_of(std::string_view session, std::string_view problem, const Event& event) {
  Json line{{"session", session}, {"problem", problem}};
  std::visit([&](const auto& kind) { put(line, kind); }, event);
  return line.dump();
}

bool begins_session(const JsonDocument& document) {
  return find_member(document.root, "journal") != nullptr;
}

Result<Line> read_line(const JsonDocument& document) {
  const JsonView root(document);
  if (begins_session(document)) return read_session(root);
  SessionEvent line;
  MOEJIT_TRY_ASSIGN(line.session, root.read_string_at("session"));
  MOEJIT_TRY_ASSIGN(line.problem, root.read_string_at("problem"));
  if (root.find("step_choices") || root.find("step_round")) return line;
  MOEJIT_TRY_ASSIGN(line.event, read_event(root));
  return line;
}

Result<JsonDocument> parse_line(std::string_view text, std::string_view source_name,
                                int32_t number) {
  if (text.size() >= kMostLineBytes)
    return tl::unexpected(error_of_line(text, source_name, number));
  Result<JsonDocument> document =
      parse_json(text, {.source_name = source_name, .stage = Stage::kFile});
  if (document) set_line(document->root, number);
  return document;
}

Error error_of_line(std::string_view text, std::string_view source_name, int32_t number) {
  if (text.size() >= kMostLineBytes)
    return {Stage::kFile, ErrorCode::kInvalidValue,
            fmt::format("{}:{}: got a line of {} bytes, wanted at most {}", source_name, number,
                        text.size() + 1, kMostLineBytes)};
  // With as many empty lines in front, the parser's line number is the file's.
  std::string placed(static_cast<std::size_t>(number - 1), '\n');
  placed += text;
  return parse_json(placed, {.source_name = source_name, .stage = Stage::kFile}).error();
}

bool may_have_begun_session(std::string_view text) {
  constexpr std::string_view kBegin = "{\"journal\":";
  return kBegin.starts_with(text) || text.starts_with(kBegin);
}

}  // namespace moejit::tune
