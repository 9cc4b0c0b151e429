// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/element.h"

#include <initializer_list>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

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
Element add_table(Element parent, std::initializer_list<Heading> headings,
                  std::string_view css = {});
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
