// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit {

enum class JsonKind { kNull, kBoolean, kNumber, kString, kArray, kObject };

struct JsonMember;

// One value of a JSON text. `text` is the decoded string, or the number as written (whole numbers
// in their shortest form). `integer` is set for numbers without point and exponent that fit.
struct JsonValue {
  JsonKind kind = JsonKind::kNull;
  int32_t line = 0;  // where the value ends (an object or array: begins), from 1
  bool boolean = false;
  std::optional<int64_t> integer;
  std::string text;
  std::vector<JsonValue> elements;  // of an array
  std::vector<JsonMember> members;  // of an object, in the order of the text; keys are unique
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Returns the member of an object with that key; null if it has none, or `value` is no object.
const JsonValue* find_member(const JsonValue& value, std::string_view key);

// Returns the strings of an array; none if `value` is not an array that has only strings.
std::optional<std::vector<std::string>> read_strings(const JsonValue& value);

struct JsonOptions {
  std::string_view source_name;  // name of the text in errors, usually its path
  Stage stage = Stage::kParse;   // of errors
  int32_t max_depth = 64;        // of arrays and objects within each other
  // Most bytes of the text, checked before anything is read, and most values in it. A value costs
  // about 120 bytes of memory, however short it is written.
  std::size_t max_bytes = SIZE_MAX;
  std::size_t max_values = SIZE_MAX;
};

struct JsonDocument {
  std::string source_name;
  Stage stage = Stage::kParse;
  JsonValue root;
};

// Reads strict JSON (RFC 8259): UTF-8 without byte order mark, no comments, nothing after the
// value, no NUL bytes. Beyond the standard it refuses duplicate keys and too deep nesting. Errors:
// kInvalidJson with line and column; kInvalidValue for numbers beyond the range of a double, and
// for more bytes or values than the options allow.
Result<JsonDocument> parse_json(std::string_view text, const JsonOptions& options);

// Makes text from outside fit for a message: control characters and malformed UTF-8 are escaped,
// and it is cut after `max_bytes`. quote_for_message() also puts it between double quotes.
std::string escape_for_message(std::string_view text, std::size_t max_bytes = 60);
std::string quote_for_message(std::string_view text, std::size_t max_bytes = 60);

// Returns the path of a member of the object at `path`: $.top_k, or $["odd key"].
std::string json_path_of_member(std::string_view path, std::string_view key);

}  // namespace moejit
