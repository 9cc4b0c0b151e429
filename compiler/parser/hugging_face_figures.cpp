// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/hugging_face_figures.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kSizesHint =
    "docs/layer-description.md says which sizes a layer may have, and why";
constexpr std::string_view kLayersDiffer =
    "a description is of one MoE layer: put the number of that layer there instead of the list";

Result<int64_t> read_number(const JsonView& view, const IntRange& range) {
  Result<int64_t> number = view.read_int(range);
  if (!number && number.error().hint.empty()) number.error().hint = kSizesHint;
  return number;
}

Result<int64_t> read_number_or_list(const JsonView& view, const IntRange& range,
                                    bool has_image_experts) {
  if (view.value().kind != JsonKind::kArray) return read_number(view, range);
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  if (elements.empty())
    return view.fail(ErrorCode::kInvalidValue, "got an empty list, wanted a number");
  MOEJIT_TRY_ASSIGN(const int64_t first, read_number(elements.front(), range));
  if (has_image_experts) return first;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(const int64_t number, read_number(element, range));
    if (number != first)
      return element.fail(
          ErrorCode::kUnsupported,
          fmt::format("got {} after {}, wanted the same number for all decoder layers", number,
                      first),
          std::string(kLayersDiffer));
  }
  return first;
}

}  // namespace

std::string_view short_path(const JsonView& view) {
  std::string_view path = view.path();
  path.remove_prefix(std::min(path.size(), std::string_view("$.").size()));
  return path;
}

std::optional<JsonView> FigureReader::find(std::string_view key) const {
  std::optional<JsonView> view = source_->config.find(key);
  if (!view && source_->parent) view = source_->parent->find(key);
  if (view && view->is_null()) return std::nullopt;
  return view;
}

bool FigureReader::has_read(std::string_view key) const {
  return std::ranges::find(read_keys_, key) != read_keys_.end();
}

void FigureReader::note_use(const JsonView& view, std::string_view field, std::string_view value) {
  read_keys_.emplace_back(view.key());
  used_keys.push_back(fmt::format("{} -> {} = {}", short_path(view), field, value));
}

std::vector<JsonView> FigureReader::find_all(std::span<const std::string_view> keys) const {
  std::vector<JsonView> found;
  for (const std::string_view key : keys) {
    if (key.empty()) continue;
    if (const std::optional<JsonView> view = source_->config.find(key); view && !view->is_null())
      found.push_back(*view);
    if (!source_->parent) continue;
    if (const std::optional<JsonView> view = source_->parent->find(key); view && !view->is_null())
      found.push_back(*view);
  }
  return found;
}

Result<int32_t> FigureReader::read(std::span<const std::string_view> keys, std::string_view field,
                                   const IntRange& range, bool has_image_experts) {
  const std::vector<JsonView> found = find_all(keys);
  if (found.empty()) {
    // An explicit null is the more likely place of the error.
    for (const std::string_view key : keys)
      if (const std::optional<JsonView> view = source_->config.find(key))
        return view->fail(
            ErrorCode::kWrongType, fmt::format("got null, wanted {}", to_string(range)),
            fmt::format("the configuration leaves the layer's {} open: put a number there", field));
    Result<JsonView> absent = source_->config.at(keys.front());
    if (absent) return absent->fail(ErrorCode::kInternal, "found twice");
    std::string others;
    for (const std::string_view key : keys.subspan(1))
      if (!key.empty()) others += fmt::format("{}{}", others.empty() ? " or " : ", ", key);
    absent.error().hint =
        fmt::format("{}{} gives the layer's {}; or {}", keys.front(), others, field, kWriteByHand);
    return tl::make_unexpected(std::move(absent).error());
  }
  MOEJIT_TRY_ASSIGN(const int64_t number,
                    read_number_or_list(found.front(), range, has_image_experts));
  for (std::size_t i = 1; i < found.size(); ++i) {
    MOEJIT_TRY_ASSIGN(const int64_t other, read_number_or_list(found[i], range, has_image_experts));
    if (other != number)
      return found[i].fail(ErrorCode::kInvalidValue,
                           fmt::format("got {}, but {} is {}: both are the layer's {}", other,
                                       found.front().path(), number, field),
                           "leave the right one of the two");
    read_keys_.emplace_back(found[i].key());
  }
  note_use(found.front(), field, fmt::to_string(number));
  return static_cast<int32_t>(number);
}

}  // namespace moejit::compiler
