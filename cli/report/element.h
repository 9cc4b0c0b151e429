// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

namespace moejit::cli {

// Returns the text as XML can hold it: bytes that are not UTF-8, and characters that XML does not
// have, become U+FFFD. Line breaks and tabs stay.
std::string page_text(std::string_view text);

// Stands for an element of a page that is being built; the page owns it and must live longer. All
// text and all values may come from outside: page_text() goes over them, and they are escaped.
class Element {
 public:
  explicit Element(pugi::xml_node node) : node_(node) {}

  // Adds an element at the end, with this text if there is one, and returns it.
  Element add(const char* name);
  Element add(const char* name, std::string_view text);

  // Appends text. Empty text keeps an element from being written as <td/>, which HTML reads as the
  // start of one.
  Element& write(std::string_view text);

  // Set an attribute. Numbers are coordinates and keep two digits behind the point.
  Element& set(const char* attribute, std::string_view value);
  Element& set(const char* attribute, double coordinate);

 private:
  pugi::xml_node node_;
};

}  // namespace moejit::cli
