// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/output.h"

#include "compiler/support/file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace moejit::cli {

Result<void> check_output(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return {};
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
    return {};  // a device or a pipe, which is written in place
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  int error = 0;
  if (fs::is_directory(status))
    error = EISDIR;
  else if (!fs::exists(folder, ignored))
    error = ENOENT;
  else if (!fs::is_directory(folder, ignored))
    error = ENOTDIR;
  else if (::access(folder.c_str(), W_OK | X_OK) != 0)
    error = errno;
  if (error == 0) return {};
  return fail(Stage::kFile, ErrorCode::kFileWrite,
              fmt::format("cannot write {}: {}", path, errno_text(error)),
              error == ENOENT ? fmt::format("make the folder {} first", folder.string())
                              : "name a file in a folder that you may write to");
}

std::string json_output(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json parse_foreign_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) { return depth <= 16; };
  return Json::parse(text, is_shallow, false);
}

std::string shell_word(std::string_view argument) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(argument);
  std::string word = "'";
  for (const char c : argument) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

namespace {

// Returns where the description of an option or command begins: after its name and at least two
// blanks.
size_t description_column(std::string_view line) {
  const size_t name = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", name);
  if (name == 0 || gap == std::string_view::npos) return name;
  return std::min(line.find_first_not_of(' ', gap), line.size());
}

void add_wrapped(std::string& text, std::string_view line, size_t width) {
  const size_t column = description_column(line);
  const std::string indent(column < width / 2 ? column : 4, ' ');
  std::string begun;
  while (begun.size() + line.size() > width) {
    const size_t room = width - begun.size();
    const size_t first = begun.empty() ? column : 0;  // the description stays on the name's line
    size_t end = line.rfind(' ', room);
    if (end == std::string_view::npos || end <= first) end = line.find(' ', first);
    if (end == std::string_view::npos) break;
    text += begun + std::string(line.substr(0, end)) + "\n";
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    begun = indent;
  }
  text += begun + std::string(line) + "\n";
}

}  // namespace

std::string wrap_help(std::string_view text, int32_t width) {
  if (width < 40) return std::string(text);
  std::string wrapped;
  bool is_example = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    is_example = is_example || line.starts_with("Examples:");
    if (is_example)
      wrapped += std::string(line) + "\n";
    else
      add_wrapped(wrapped, line, static_cast<size_t>(width));
  }
  return wrapped;
}

}  // namespace moejit::cli
