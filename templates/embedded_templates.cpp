// SPDX-License-Identifier: Apache-2.0
#include "templates/embedded_templates.h"

#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <map>
#include <memory>

namespace moejit::templates {
namespace {

constexpr std::string_view kDevicePtx = "moejit_device/ptx/";

std::string_view trim_left(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The name between the quotes of `#include "name"`; empty for any other line.
std::string_view quoted_include(std::string_view line) {
  line = trim_left(line);
  if (!consume(line, "#")) return {};
  line = trim_left(line);
  if (!consume(line, "include")) return {};
  line = trim_left(line);
  if (!consume(line, "\"")) return {};
  return line.substr(0, line.find('"'));
}

std::vector<std::string_view> quoted_includes(std::string_view source) {
  std::vector<std::string_view> names;
  while (!source.empty()) {
    const auto end = std::min(source.find('\n'), source.size());
    const std::string_view name = quoted_include(source.substr(0, end));
    if (!name.empty()) names.push_back(name);
    source.remove_prefix(std::min(end + 1, source.size()));
  }
  return names;
}

using Names = std::vector<std::string_view>;

// Returns what an embedded file includes, read off its text once. The text is part of the program,
// so that what was read stays right as long as the process lives. Nothing is locked, as a fork()
// may come at any time.
const Names& includes_of(const EmbeddedFile& file) {
  // Never destroyed: threads may outlive main().
  static auto& known = *new std::vector<std::atomic<const Names*>>(embedded_files().size());
  auto& slot = known[static_cast<std::size_t>(&file - embedded_files().data())];
  if (const Names* const names = slot.load(std::memory_order_acquire)) return *names;
  auto names = std::make_unique<const Names>(quoted_includes(file.text));
  const Names* expected = nullptr;  // another thread may have been faster
  if (slot.compare_exchange_strong(expected, names.get(), std::memory_order_acq_rel))
    return *names.release();
  return *expected;
}

}  // namespace

const EmbeddedFile* find_embedded(std::string_view include_name) {
  const auto files = embedded_files();
  const auto at = std::lower_bound(
      files.begin(), files.end(), include_name,
      [](const EmbeddedFile& file, std::string_view name) { return file.include_name < name; });
  return at != files.end() && at->include_name == include_name ? &*at : nullptr;
}

const EmbeddedFile* resolve_include(std::string_view include_name, Overlays overlays) {
  if (include_name.starts_with(kDevicePtx))
    for (const std::string_view folder : overlays)
      if (const EmbeddedFile* file = find_embedded(
              fmt::format("{}/ptx/{}", folder, include_name.substr(kDevicePtx.size()))))
        return file;
  return find_embedded(include_name);
}

Result<std::vector<IncludedFile>> include_closure(std::string_view source, Overlays overlays) {
  std::map<std::string_view, const EmbeddedFile*> found;
  std::vector<const EmbeddedFile*> pending;
  const auto add = [&](const Names& names, std::string_view includer) -> Result<void> {
    for (const std::string_view name : names) {
      if (found.contains(name)) continue;
      const EmbeddedFile* file = resolve_include(name, overlays);
      if (file == nullptr) {
        return fail(Stage::kEmit, ErrorCode::kInternal,
                    fmt::format("include \"{}\" in {}: no such embedded header", name, includer),
                    "kernels may include only files below templates/moejit_device");
      }
      found.emplace(name, file);
      pending.push_back(file);
    }
    return {};
  };
  MOEJIT_TRY(add(quoted_includes(source), "the kernel source"));
  while (!pending.empty()) {
    const EmbeddedFile& includer = *pending.back();
    pending.pop_back();
    MOEJIT_TRY(add(includes_of(includer), includer.include_name));
  }
  std::vector<IncludedFile> closure;
  closure.reserve(found.size());
  for (const auto& [name, file] : found) closure.push_back({std::string(name), file});
  return closure;
}

}  // namespace moejit::templates
