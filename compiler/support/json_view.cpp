// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_view.h"

#include "compiler/support/nearest_name.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <utility>

namespace moejit {
namespace {

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(name, known);
  const std::string list = fmt::format("known: {}", fmt::join(known, ", "));
  return nearest.empty() ? list : fmt::format("did you mean {}? {}", nearest, list);
}

// Returns the allowed numbers next to one that is not allowed: "nearest: 240, 256". A number beyond
// int64_t has none.
std::string nearest_numbers(std::optional<int64_t> number, const IntRange& range) {
  if (!number) return fmt::format("nearest: {}", range.highest);
  const int64_t step = range.multiple_of;
  const int64_t most = range.highest - range.highest % step;
  const int64_t least = range.lowest + (step - range.lowest % step) % step;
  const int64_t inside = std::clamp(*number, least, most);
  const int64_t below = inside - inside % step;
  if (below == inside) return fmt::format("nearest: {}", inside);
  return fmt::format("nearest: {}, {}", below, below + step);
}

// Returns the hint for a value of the wrong kind that would be right without its quotes.
std::string without_quotes(const JsonValue& value, std::string_view what) {
  return value.kind == JsonKind::kString ? fmt::format("write {} without quotes", what)
                                         : fmt::format("write {} here", what);
}

bool is_whole(std::string_view number) {
  return number.find_first_of(".eE") == std::string_view::npos;
}

}  // namespace

std::string to_string(const IntRange& range) {
  std::string text = range.lowest == range.highest
                         ? fmt::format("{}", range.lowest)
                         : fmt::format("{} to {}", range.lowest, range.highest);
  if (range.multiple_of != 1)
    text = fmt::format("a multiple of {} from {}", range.multiple_of, text);
  if (!range.bound_by.empty()) text += fmt::format(" ({})", range.bound_by);
  return text;
}

JsonView::JsonView(const JsonDocument& document) : JsonView(document, document.root, "$", {}) {}

JsonView::JsonView(const JsonDocument& document, const JsonValue& value, std::string path,
                   std::string_view key)
    : document_(&document), value_(&value), path_(std::move(path)), key_(key) {}

Result<void> JsonView::check_object() const {
  if (value_->kind == JsonKind::kObject) return {};
  return fail(ErrorCode::kWrongType, fmt::format("got {}, wanted an object", got()),
              "an object is written in braces: {\"key\": value}");
}

Result<void> JsonView::check_keys(std::span<const std::string_view> known) const {
  MOEJIT_TRY(check_object());
  for (const JsonMember& member : value_->members) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    const JsonView view(*document_, member.value, json_path_of_member(path_, member.key),
                        member.key);
    return view.fail(ErrorCode::kUnknownKey, "unknown key", did_you_mean(member.key, known));
  }
  return {};
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  for (const JsonMember& member : value_->members)
    if (member.key == key)
      return JsonView(*document_, member.value, json_path_of_member(path_, key), member.key);
  return std::nullopt;
}

Result<JsonView> JsonView::at(std::string_view key) const {
  MOEJIT_TRY(check_object());
  if (std::optional<JsonView> member = find(key)) return *std::move(member);
  const JsonView absent(*document_, *value_, json_path_of_member(path_, key), key);
  return absent.fail(ErrorCode::kMissingKey, "missing key",
                     fmt::format("add \"{}\" and its value to {}", key,
                                 path_ == "$" ? "the outermost object" : path_));
}

Result<std::vector<JsonView>> JsonView::read_members() const {
  MOEJIT_TRY(check_object());
  std::vector<JsonView> members;
  members.reserve(value_->members.size());
  for (const JsonMember& member : value_->members)
    members.push_back(
        JsonView(*document_, member.value, json_path_of_member(path_, member.key), member.key));
  return members;
}

Result<std::vector<JsonView>> JsonView::read_array() const {
  if (value_->kind != JsonKind::kArray)
    return fail(ErrorCode::kWrongType, fmt::format("got {}, wanted an array", got()),
                "an array is written in brackets, also with one element: [value]");
  std::vector<JsonView> elements;
  elements.reserve(value_->elements.size());
  for (const JsonValue& element : value_->elements)
    elements.push_back(
        JsonView(*document_, element, fmt::format("{}[{}]", path_, elements.size()), {}));
  return elements;
}

Result<int64_t> JsonView::read_int(const IntRange& range) const {
  const std::string what = fmt::format("got {}, wanted {}", got(), to_string(range));
  if (value_->kind != JsonKind::kNumber)
    return fail(ErrorCode::kWrongType, what, "write a whole number without quotes");
  if (!is_whole(value_->text))
    return fail(ErrorCode::kWrongType, what, "write a whole number without point or exponent");
  const std::optional<int64_t> number = value_->integer;
  if (!number || *number < range.lowest || *number > range.highest ||
      *number % range.multiple_of != 0)
    return fail(ErrorCode::kInvalidValue, what, nearest_numbers(number, range));
  return *number;
}

Result<double> JsonView::read_number() const {
  const std::string what = fmt::format("got {}, wanted a number", got());
  if (value_->kind != JsonKind::kNumber)
    return fail(ErrorCode::kWrongType, what, without_quotes(*value_, "a number"));
  double number = 0.0;
  const std::string& text = value_->text;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return fail(ErrorCode::kInvalidValue, what);
  return number;
}

Result<bool> JsonView::read_bool() const {
  if (value_->kind == JsonKind::kBoolean) return value_->boolean;
  return fail(ErrorCode::kWrongType, fmt::format("got {}, wanted true or false", got()),
              without_quotes(*value_, "true or false"));
}

Result<std::string> JsonView::read_string() const {
  if (value_->kind == JsonKind::kString) return value_->text;
  return fail(ErrorCode::kWrongType, fmt::format("got {}, wanted a string", got()),
              "a string is written in double quotes");
}

Result<std::string> JsonView::read_string_at(std::string_view key) const {
  MOEJIT_TRY_ASSIGN(const JsonView member, at(key));
  return member.read_string();
}

Result<std::size_t> JsonView::read_choice(std::span<const std::string_view> names) const {
  const std::string wanted = fmt::format("\"{}\"", fmt::join(names, "\", \""));
  const std::string what =
      fmt::format("got {}, wanted {}{}", got(), names.size() > 1 ? "one of " : "", wanted);
  if (value_->kind != JsonKind::kString)
    return fail(ErrorCode::kWrongType, what, "a string is written in double quotes");
  const auto found = std::find(names.begin(), names.end(), value_->text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::string_view nearest = nearest_name(value_->text, names);
  return fail(ErrorCode::kInvalidValue, what,
              nearest.empty() ? std::string() : fmt::format("did you mean \"{}\"?", nearest));
}

std::string JsonView::got() const {
  switch (value_->kind) {
    case JsonKind::kNull: return "null";
    case JsonKind::kBoolean: return value_->boolean ? "true" : "false";
    case JsonKind::kNumber: return escape_for_message(value_->text);
    case JsonKind::kString: return quote_for_message(value_->text);
    case JsonKind::kArray: return "an array";
    case JsonKind::kObject: return "an object";
  }
  return "nothing";
}

tl::unexpected<Error> JsonView::fail(ErrorCode code, std::string_view what,
                                     std::string hint) const {
  return moejit::fail(
      document_->stage, code,
      fmt::format("{}:{}: {}: {}", document_->source_name, value_->line, path_, what),
      std::move(hint));
}

}  // namespace moejit
