// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_document.h"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace moejit {

// A value that is built to be written as JSON. Objects keep the order in which members were added.
// Destroying one needs no memory, so that a host without any left gets an error. nlohmann's values
// allocate in their destructor, and end the process if that fails.
class Json {
 public:
  using Member = std::pair<std::string_view, Json>;

  Json() = default;  // null
  explicit Json(JsonValue value) : value_(std::move(value)) {}
  // NOLINTBEGIN(google-explicit-constructor): so that a literal looks like what is written.
  Json(std::string_view text) { set(JsonKind::kString, std::string(text)); }
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(std::same_as<bool> auto value) : value_{.kind = JsonKind::kBoolean, .boolean = value} {}
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) Json(Number number) {
    set(JsonKind::kNumber, std::to_string(number));
  }
  // Makes an array of the elements.
  template <typename Element>
  Json(const std::vector<Element>& elements) : Json(array()) {
    for (const Element& element : elements) push_back(element);
  }
  // Makes an object. Keys are unique.
  Json(std::initializer_list<Member> members) : Json(object()) {
    for (const auto& [key, value] : members) (*this)[key] = value;
  }
  // NOLINTEND(google-explicit-constructor)

  static Json array() { return Json(JsonValue{.kind = JsonKind::kArray}); }
  static Json object() { return Json(JsonValue{.kind = JsonKind::kObject}); }

  // Adds an element to an array.
  void push_back(Json element) { value_.elements.push_back(std::move(element.value_)); }

  // Stands for a member of an object, which assignment adds if it is absent.
  class MemberOf {
   public:
    MemberOf& operator=(Json value);

   private:
    friend class Json;
    MemberOf(JsonValue& object, std::string_view key) : object_(object), key_(key) {}
    JsonValue& object_;
    std::string_view key_;
  };
  MemberOf operator[](std::string_view key) { return {value_, key}; }

  // Returns the text: on one line without blanks if `indent` is negative, else with a line for each
  // value and `indent` blanks for each level. Bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;

 private:
  void set(JsonKind kind, std::string text) {
    value_.kind = kind;
    value_.text = std::move(text);
  }

  JsonValue value_;
};

// Returns the shortest number that reads back as the same one; null if it is not finite, since JSON
// has no such number.
Json json_number(double number);

// Returns the text as a JSON string with its quotes, bytes that are not UTF-8 as U+FFFD.
std::string json_string(std::string_view text);

}  // namespace moejit
