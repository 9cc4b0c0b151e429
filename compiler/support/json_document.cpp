// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_document.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <locale.h>
#include <nlohmann/json.hpp>
#include <utility>

namespace moejit {
namespace {

// How far the parser has read. `line` is the line of the last character read.
struct Progress {
  int32_t line = 1;
  bool is_after_newline = false;
};

// Iterates over the text and keeps `progress` up to date; copies share it.
class TrackedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedIterator(const char* position, Progress* progress)
      : position_(position), progress_(progress) {}

  reference operator*() const { return *position_; }
  bool operator==(const TrackedIterator& other) const { return position_ == other.position_; }

  TrackedIterator& operator++() {
    if (progress_->is_after_newline) ++progress_->line;
    progress_->is_after_newline = *position_ == '\n';
    ++position_;
    return *this;
  }

 private:
  const char* position_;
  Progress* progress_;
};

// Has the calling thread read numbers with a point until it is destroyed. The library reads them by
// strtod(), which follows the host's locale, and would hand us "7,5" of a German one.
class NumbersWithPoint {
 public:
  NumbersWithPoint() noexcept : chosen_(uselocale(plain())) {}
  ~NumbersWithPoint() { uselocale(chosen_); }
  NumbersWithPoint(const NumbersWithPoint&) = delete;
  NumbersWithPoint& operator=(const NumbersWithPoint&) = delete;

 private:
  static locale_t plain() noexcept {
    static const locale_t locale = newlocale(LC_ALL_MASK, "C", locale_t{});
    return locale;
  }

  locale_t chosen_;
};

std::string place(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t newline = before.rfind('\n');
  const std::string_view line = newline == before.npos ? before : before.substr(newline + 1);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  // Columns are code points: bytes that continue one do not count.
  const auto columns = std::count_if(line.begin(), line.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  });
  return fmt::format("{}:{}", lines + 1, columns + 1);
}

// Returns what the library says is wrong, without its own prefix and position.
std::string reason_of(std::string_view library_message) {
  const std::size_t start = library_message.find("syntax error");
  const std::size_t dash =
      start == library_message.npos ? start : library_message.find(" - ", start);
  if (dash == library_message.npos) return escape_for_message(library_message, 160);
  return escape_for_message(library_message.substr(dash + 3), 160);
}

std::string hint_for(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return "the text ends too early: is a bracket or a quote not closed?";
  const char found = text[offset];
  const std::size_t before = text.substr(0, offset).find_last_not_of(" \t\r\n");
  const char previous = before == text.npos ? '\0' : text[before];
  if (found == '/' || found == '#' || previous == '/') return "JSON has no comments";
  if (found == '\'') return "JSON strings take double quotes";
  if ((found == '}' || found == ']') && previous == ',')
    return "JSON has no comma after the last entry";
  return {};
}

// Builds the tree from the library's events. An event returns false to stop; `error` then says why.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const JsonOptions& options, const Progress& progress)
      : text_(text), options_(options), progress_(progress) {}

  bool null() { return add({.kind = JsonKind::kNull}); }
  bool boolean(bool value) { return add({.kind = JsonKind::kBoolean, .boolean = value}); }

  bool number_integer(int64_t value) {
    return add({.kind = JsonKind::kNumber, .integer = value, .text = std::to_string(value)});
  }

  bool number_unsigned(uint64_t value) {
    JsonValue number{.kind = JsonKind::kNumber, .text = std::to_string(value)};
    if (value <= static_cast<uint64_t>(INT64_MAX)) number.integer = static_cast<int64_t>(value);
    return add(std::move(number));
  }

  bool number_float(double /*value*/, const std::string& written) {
    return add({.kind = JsonKind::kNumber, .text = written});
  }

  bool string(std::string& value) {
    return add({.kind = JsonKind::kString, .text = std::move(value)});
  }

  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(std::size_t /*size*/) { return open(JsonKind::kObject); }
  bool start_array(std::size_t /*size*/) { return open(JsonKind::kArray); }
  bool end_array() { return close(); }
  bool end_object() { return has_unique_keys() && close(); }

  bool key(std::string& name) {
    open_.back().members.push_back({std::move(name), {.line = progress_.line}});
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& exception) {
    const std::size_t offset = std::min(position == 0 ? 0 : position - 1, text_.size());
    const std::string where = fmt::format("{}:{}", options_.source_name, place(text_, offset));
    if (dynamic_cast<const nlohmann::detail::out_of_range*>(&exception) != nullptr)
      return stop(ErrorCode::kInvalidValue,
                  fmt::format("{}: {}: got {}, wanted a number that a double can hold", where,
                              path(), escape_for_message(token)));
    return stop(ErrorCode::kInvalidJson,
                fmt::format("{}: not JSON: {}", where, reason_of(exception.what())),
                hint_for(text_, offset));
  }

  JsonValue root;
  Error error{};

 private:
  bool stop(ErrorCode code, std::string message, std::string hint = {}) {
    error = {options_.stage, code, std::move(message), std::move(hint), {}};
    return false;
  }

  bool add(JsonValue value) {
    if (++values_ > options_.max_values)
      return stop(
          ErrorCode::kInvalidValue,
          fmt::format("{}:{}: got more than {} values, wanted at most {}", options_.source_name,
                      progress_.line, options_.max_values, options_.max_values));
    if (value.line == 0) value.line = progress_.line;
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().kind == JsonKind::kObject) {
      open_.back().members.back().value = std::move(value);
    } else {
      open_.back().elements.push_back(std::move(value));
    }
    return true;
  }

  bool open(JsonKind kind) {
    if (static_cast<int32_t>(open_.size()) >= options_.max_depth)
      return stop(
          ErrorCode::kInvalidJson,
          fmt::format("{}:{}: nested too deeply: got more than {} arrays and objects within "
                      "each other",
                      options_.source_name, progress_.line, options_.max_depth));
    open_.push_back({.kind = kind, .line = progress_.line});
    return true;
  }

  bool close() {
    JsonValue value = std::move(open_.back());
    open_.pop_back();
    return add(std::move(value));
  }

  bool has_unique_keys() {
    const std::vector<JsonMember>& members = open_.back().members;
    std::vector<const JsonMember*> sorted;
    sorted.reserve(members.size());
    for (const JsonMember& member : members) sorted.push_back(&member);
    // Members lie in the order of the text, so their addresses show which came first.
    std::sort(sorted.begin(), sorted.end(), [](const JsonMember* a, const JsonMember* b) {
      return a->key != b->key ? a->key < b->key : a < b;
    });
    const auto twin = std::adjacent_find(
        sorted.begin(), sorted.end(),
        [](const JsonMember* a, const JsonMember* b) { return a->key == b->key; });
    if (twin == sorted.end()) return true;
    const JsonMember& first = **twin;
    const JsonMember& second = **std::next(twin);
    return stop(ErrorCode::kInvalidJson,
                fmt::format("{}:{}: {}: duplicate key, first given on line {}",
                            options_.source_name, second.value.line,
                            json_path_of_member(path_of_open(), second.key), first.value.line),
                "remove one of the two");
  }

  // Returns the path of the innermost open array or object.
  std::string path_of_open() const {
    std::string path = "$";
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) path = path_below(open_[i], path);
    return path;
  }

  // Returns the path of the value that is being read.
  std::string path() const {
    return open_.empty() ? "$" : path_below(open_.back(), path_of_open());
  }

  static std::string path_below(const JsonValue& parent, const std::string& path) {
    if (parent.kind == JsonKind::kArray) return fmt::format("{}[{}]", path, parent.elements.size());
    return parent.members.empty() ? path : json_path_of_member(path, parent.members.back().key);
  }

  std::string_view text_;
  const JsonOptions& options_;
  const Progress& progress_;
  std::size_t values_ = 0;
  std::vector<JsonValue> open_;  // arrays and objects that are not complete yet, outermost first
};

// Refuses what the library would accept or explain badly.
Result<void> check_bytes(std::string_view text, const JsonOptions& options) {
  const auto refuse = [&](std::string_view what, std::string hint) {
    return fail(options.stage, ErrorCode::kInvalidJson,
                fmt::format("{}:{}", options.source_name, what), std::move(hint));
  };
  if (text.size() > options.max_bytes)
    return fail(options.stage, ErrorCode::kInvalidValue,
                fmt::format("{}: got {} bytes, wanted at most {}", options.source_name, text.size(),
                            options.max_bytes));
  if (text.starts_with("\xEF\xBB\xBF"))
    return refuse("1:1: not JSON: the text begins with a byte order mark",
                  "save it as UTF-8 without a byte order mark");
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return refuse("1:1: not JSON: got UTF-16, wanted UTF-8", "save it as UTF-8");
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return refuse("1:1: not JSON: the text is empty", {});
  // The library takes NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    return refuse(fmt::format("{}: not JSON: got a NUL byte", place(text, nul)), {});
  return {};
}

// Returns the length of the UTF-8 sequence that `text` begins with; 0 if it begins with none.
std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80u                     ? 1
                             : first >= 0xC2u && first < 0xE0u ? 2
                             : first >= 0xE0u && first < 0xF0u ? 3
                             : first >= 0xF0u && first < 0xF5u ? 4
                                                               : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0u) != 0x80u) return 0;
  return length;
}

}  // namespace

const JsonValue* find_member(const JsonValue& value, std::string_view key) {
  const auto found = std::ranges::find(value.members, key, &JsonMember::key);
  return found == value.members.end() ? nullptr : &found->value;
}

std::optional<std::vector<std::string>> read_strings(const JsonValue& value) {
  if (value.kind != JsonKind::kArray) return std::nullopt;
  std::vector<std::string> strings;
  for (const JsonValue& element : value.elements) {
    if (element.kind != JsonKind::kString) return std::nullopt;
    strings.push_back(element.text);
  }
  return strings;
}

Result<JsonDocument> parse_json(std::string_view text, const JsonOptions& options) {
  MOEJIT_TRY(check_bytes(text, options));
  Progress progress;
  TreeBuilder builder(text, options, progress);
  const TrackedIterator first(text.data(), &progress);
  const TrackedIterator last(text.data() + text.size(), &progress);
  const NumbersWithPoint numbers;
  if (!nlohmann::json::sax_parse(first, last, &builder))
    return tl::make_unexpected(std::move(builder.error));
  return JsonDocument{std::string(options.source_name), options.stage, std::move(builder.root)};
}

std::string escape_for_message(std::string_view text, std::size_t max_bytes) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size();) {
    if (escaped.size() >= max_bytes) return escaped + "...";
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    const bool is_c1 =
        length == 2 && byte == 0xC2u && static_cast<unsigned char>(text[i + 1]) < 0xA0u;
    if (length == 0 || byte < 0x20u || byte == 0x7Fu || is_c1) {
      escaped += fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      escaped += text.substr(i, length);
      i += length;
    }
  }
  return escaped;
}

std::string quote_for_message(std::string_view text, std::size_t max_bytes) {
  return fmt::format("\"{}\"", escape_for_message(text, max_bytes));
}

std::string json_path_of_member(std::string_view path, std::string_view key) {
  const bool is_plain =
      !key.empty() && key.size() <= 60 && std::all_of(key.begin(), key.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
      });
  if (is_plain) return fmt::format("{}.{}", path, key);
  return fmt::format("{}[{}]", path, quote_for_message(key));
}

}  // namespace moejit
