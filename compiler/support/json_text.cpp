// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit {
namespace {

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const JsonValue& value) {
    switch (value.kind) {
      case JsonKind::kNull: text_ += "null"; break;
      case JsonKind::kBoolean: text_ += value.boolean ? "true" : "false"; break;
      case JsonKind::kNumber: text_ += value.text; break;
      case JsonKind::kString: text_ += json_string(value.text); break;
      case JsonKind::kArray:
        write_all('[', value.elements, ']', [&](const JsonValue& element) { write(element); });
        break;
      case JsonKind::kObject:
        write_all('{', value.members, '}', [&](const JsonMember& member) {
          text_ += json_string(member.key);
          text_ += indent_ < 0 ? ":" : ": ";
          write(member.value);
        });
        break;
    }
  }

  std::string text_;

 private:
  template <typename Item, typename Write>
  void write_all(char open, const std::vector<Item>& items, char close, const Write& write_item) {
    text_ += open;
    ++depth_;
    for (const Item& item : items) {
      if (&item != &items.front()) text_ += ',';
      new_line();
      write_item(item);
    }
    --depth_;
    if (!items.empty()) new_line();
    text_ += close;
  }

  void new_line() {
    if (indent_ < 0) return;
    text_ += '\n';
    text_.append(static_cast<std::size_t>(depth_ * indent_), ' ');
  }

  int indent_;
  int depth_ = 0;
};

}  // namespace

Json::MemberOf& Json::MemberOf::operator=(Json value) {
  const auto found = std::ranges::find(object_.members, key_, &JsonMember::key);
  if (found != object_.members.end())
    found->value = std::move(value.value_);
  else
    object_.members.push_back({std::string(key_), std::move(value.value_)});
  return *this;
}

std::string Json::dump(int indent) const {
  Writer writer(indent);
  writer.write(value_);
  return std::move(writer.text_);
}

Json json_number(double number) {
  if (!std::isfinite(number)) return {};
  return Json(JsonValue{.kind = JsonKind::kNumber, .text = fmt::format("{}", number)});
}

std::string json_string(std::string_view text) {
  using Leaf = nlohmann::json;  // of a string: its destructor needs no memory
  return Leaf(text).dump(-1, ' ', false, Leaf::error_handler_t::replace);
}

}  // namespace moejit
