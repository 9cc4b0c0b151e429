// SPDX-License-Identifier: Apache-2.0
#include "cli/report/html_page.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fmt/core.h>
#include <sstream>

namespace moejit::cli {

extern const char* const kPageStyle;  // page_style.cpp

namespace {

// A character at the start of a text: its bytes, or 0 if the text starts with none.
struct Decoded {
  std::size_t bytes = 0;
  uint32_t code = 0;
};

Decoded decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80u) return {1, first};
  const std::size_t bytes = first >= 0xF0u ? 4 : first >= 0xE0u ? 3 : 2;
  if (first < 0xC2u || first > 0xF4u || bytes > text.size()) return {};
  uint32_t code = first & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0u) != 0x80u) return {};
    code = (code << 6u) | (byte & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // by bytes; less is too long a form
  return code < kLeast[bytes] ? Decoded{} : Decoded{bytes, code};
}

// Returns whether XML 1.0 has the character.
bool is_xml(uint32_t code) {
  if (code < 0x20u) return code == '\t' || code == '\n' || code == '\r';
  return code != 0x7Fu && (code < 0xD800u || code > 0xDFFFu) && code != 0xFFFEu &&
         code != 0xFFFFu && code <= 0x10FFFFu;
}

// Adds the box that scrolls. It takes the focus, so that the keyboard scrolls it too.
Element add_scroll_box(Element parent) {
  return parent.add("div").set("class", "scroll").set("tabindex", "0");
}

}  // namespace

std::string page_text(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const Decoded character = decode(text);
    if (character.bytes > 0 && is_xml(character.code)) {
      clean += text.substr(0, character.bytes);
    } else {
      clean += "\xEF\xBF\xBD";
    }
    text.remove_prefix(character.bytes > 0 ? character.bytes : 1);
  }
  return clean;
}

Element Element::add(const char* name) { return Element(node_.append_child(name)); }

Element Element::add(const char* name, std::string_view text) {
  Element added = add(name);
  added.write(text);
  return added;
}

Element& Element::write(std::string_view text) {
  node_.append_child(pugi::node_pcdata).set_value(page_text(text).c_str());
  return *this;
}

Element& Element::set(const char* attribute, std::string_view value) {
  const pugi::xml_attribute present = node_.attribute(attribute);
  pugi::xml_attribute target = present ? present : node_.append_attribute(attribute);
  target.set_value(page_text(value).c_str());
  return *this;
}

Element& Element::set(const char* attribute, double coordinate) {
  const double rounded = std::round(coordinate * 100.0) / 100.0;
  return set(attribute, std::string_view(fmt::format("{}", rounded == 0.0 ? 0.0 : rounded)));
}

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

Element add_table(Element parent, const std::vector<Heading>& headings, std::string_view css) {
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
