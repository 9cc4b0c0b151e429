// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

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

// A page in one file: no scripts, nothing from outside, readable in light, dark and on paper. Its
// text is HTML 5 and XML at the same time.
class HtmlPage {
 public:
  // Begins a page with a title and a line below it that says what the page is of.
  HtmlPage(std::string_view title, std::string_view subtitle);

  // Returns the element that holds the content.
  Element main() const { return main_; }
  std::string text() const;

 private:
  pugi::xml_document document_;
  Element main_{pugi::xml_node()};
};

// A fact at the top of a page: a short label, and a number or word in large type.
struct Fact {
  std::string_view label;
  std::string text;
  std::optional<double> value = {};  // the number of the text, in full precision
};
void add_facts(Element parent, const std::vector<Fact>& facts);

struct Heading {
  std::string_view text;
  bool is_number = false;  // whether the column's cells are numbers, which stand to the right
};
// Adds a table that scrolls sideways where the screen is narrow, and returns its body. `css` is a
// class of the style sheet, or empty.
Element add_table(Element parent, const std::vector<Heading>& headings, std::string_view css = {});
// Adds a number with its full precision for programs: <data value="0.8117">-18.8 %</data>.
void add_value(Element parent, double value, std::string_view text);
// Adds a cell with a number to a row. A number that is not known or not finite is "unknown".
void add_number(Element row, std::optional<double> value, std::string_view text);
// Adds a cell where a number makes no sense.
void add_no_number(Element row);

// Adds a figure that scrolls sideways where the screen is narrow, with a caption, and returns the
// element that takes the drawing.
Element add_figure(Element parent, std::string_view caption);

}  // namespace moejit::cli
