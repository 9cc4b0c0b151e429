// SPDX-License-Identifier: Apache-2.0
#include "cli/report/element.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fmt/core.h>

namespace moejit::cli {
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

}  // namespace moejit::cli
