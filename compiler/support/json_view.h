// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_document.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit {

// The whole numbers that a field may hold. `bound_by` names the field that sets `highest`, if any.
struct IntRange {
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t multiple_of = 1;
  std::string_view bound_by = {};
};

// Returns for example "1 to 8 (experts)" or "a multiple of 16 from 16 to 65536".
std::string to_string(const IntRange& range);

// A value of a document and its path. Its reads check the value, and their errors name source,
// line, path, what was got and what was wanted. It is cheap to copy and must not outlive the
// document.
class JsonView {
 public:
  explicit JsonView(const JsonDocument& document);

  const JsonValue& value() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& source_name() const { return document_->source_name; }
  std::string_view key() const { return key_; }  // for a member of an object, else empty
  bool is_null() const { return value_->kind == JsonKind::kNull; }

  // Returns kWrongType if the value is not an object.
  Result<void> check_object() const;
  // Returns kUnknownKey for the first member that is not among `known`, with the nearest known key.
  Result<void> check_keys(std::span<const std::string_view> known) const;
  // Returns the member of an object; none if it is absent or this is not an object.
  std::optional<JsonView> find(std::string_view key) const;
  // Returns the member as find() does, but kMissingKey or kWrongType instead of none.
  Result<JsonView> at(std::string_view key) const;
  Result<std::vector<JsonView>> read_members() const;

  Result<std::vector<JsonView>> read_array() const;
  Result<int64_t> read_int(const IntRange& range) const;
  Result<double> read_number() const;  // any finite number
  Result<bool> read_bool() const;
  Result<std::string> read_string() const;
  // Returns the string of a member. Errors: as of at() and read_string().
  Result<std::string> read_string_at(std::string_view key) const;
  // Returns the index of the string in `names`; kInvalidValue with the nearest name.
  Result<std::size_t> read_choice(std::span<const std::string_view> names) const;

  // Returns the value in words for a message: 8.0, "text", null, an array, an object.
  std::string got() const;
  // Returns an error at this value: "source:line: path: what".
  tl::unexpected<Error> fail(ErrorCode code, std::string_view what, std::string hint = {}) const;

 private:
  JsonView(const JsonDocument& document, const JsonValue& value, std::string path,
           std::string_view key);

  const JsonDocument* document_;
  const JsonValue* value_;
  std::string path_;
  std::string_view key_;
};

}  // namespace moejit
