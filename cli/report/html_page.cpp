// SPDX-License-Identifier: Apache-2.0
#include "cli/report/html_page.h"

#include "cli/report/page_style.h"

#include <cmath>
#include <fmt/core.h>
#include <sstream>

namespace moejit::cli {
namespace {

// Adds the box that scrolls. It takes the focus, so that the keyboard scrolls it too.
Element add_scroll_box(Element parent) {
  return parent.add("div").set("class", "scroll").set("tabindex", "0");
}

}  // namespace

HtmlPage::HtmlPage(std::string_view title, std::string_view subtitle) {
  document_.append_child(pugi::node_doctype).set_value("html");
  Element html = Element(document_).add("html").set("lang", "en");
  Element head = html.add("head");
  head.add("meta").set("charset", "utf-8");
  head.add("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1");
  head.add("meta").set("name", "color-scheme").set("content", "light dark");
  head.add("title", title);
  head.add("style", kPageStyle);
  main_ = html.add("body").add("main");
  Element header = main_.add("header");
  header.add("h1", title);
  header.add("p", subtitle).set("class", "subtitle");
}

std::string HtmlPage::text() const {
  std::ostringstream stream;
  document_.save(stream, " ", pugi::format_indent | pugi::format_no_declaration,
                 pugi::encoding_utf8);
  return stream.str();
}

void add_facts(Element parent, const std::vector<Fact>& facts) {
  Element list = parent.add("dl").set("class", "facts");
  for (const Fact& fact : facts) {
    Element item = list.add("div");
    item.add("dt", fact.label);
    Element text = item.add("dd");
    if (fact.value) {
      add_value(text, *fact.value, fact.text);
    } else {
      text.write(fact.text);
    }
  }
}

Element add_table(Element parent, std::initializer_list<Heading> headings, std::string_view css) {
  Element table = add_scroll_box(parent).add("table");
  if (!css.empty()) table.set("class", css);
  Element row = table.add("thead").add("tr");
  for (const Heading& heading : headings) {
    Element cell = row.add("th", heading.text).set("scope", "col");
    if (heading.is_number) cell.set("class", "number");
  }
  return table.add("tbody");
}

void add_value(Element parent, double value, std::string_view text) {
  parent.add("data", text).set("value", std::string_view(fmt::format("{}", value)));
}

void add_number(Element row, std::optional<double> value, std::string_view text) {
  Element cell = row.add("td").set("class", "number");
  if (value && std::isfinite(*value)) {
    add_value(cell, *value, text);
  } else {
    cell.write("unknown").set("class", "number unknown");
  }
}

void add_no_number(Element row) { row.add("td", "\u2013").set("class", "number unknown"); }

Element add_figure(Element parent, std::string_view caption) {
  Element figure = parent.add("figure");
  Element box = add_scroll_box(figure);
  figure.add("figcaption", caption);
  return box;
}

}  // namespace moejit::cli
