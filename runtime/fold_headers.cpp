// SPDX-License-Identifier: Apache-2.0
#include "runtime/fold_headers.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <sstream>
#include <string>

namespace moejit::runtime {
namespace {

constexpr std::string_view kHeader = "header", kDevice = "moejit_device/", kOurs = "moejit_";
constexpr std::string_view kSuffix = ".cuh";

// Returns "header:" or "header ", whichever the target uses; empty for another field.
std::string_view prefix_of(std::string_view name) {
  const std::string_view prefix = name.substr(0, kHeader.size() + 1);
  return prefix == "header:" || prefix == "header " ? prefix : std::string_view();
}

bool is_whole_header(const HashedField& field) {
  return !prefix_of(field.name).empty() && Digest::from_hex(field.value).has_value();
}

HashedField folded(std::span<const HashedField> headers) {
  const std::string prefix(prefix_of(headers[0].name));
  std::string text, folder;
  for (const HashedField& header : headers) {
    std::string_view path = std::string_view(header.name).substr(prefix.size());
    if (path.starts_with(kDevice) && path.find('/', kDevice.size()) != path.npos)
      path.remove_prefix(kDevice.size());
    const std::size_t file_at = path.rfind('/') + 1;
    std::string_view file = path.substr(file_at);
    if (folder != path.substr(0, file_at)) {
      folder = path.substr(0, file_at);
      text += folder + " ";
    }
    if (file.ends_with(kSuffix)) file.remove_suffix(kSuffix.size());
    text += fmt::format("{} {} ", file, header.value.substr(0, kStoredHeaderDigits));
  }
  text.pop_back();
  return {prefix + "*", std::move(text)};
}

// Returns none for a field that folded() does not make.
std::optional<std::vector<HashedField>> unfolded(const HashedField& field) {
  const std::string prefix(prefix_of(field.name));
  if (prefix.empty() || field.name != prefix + "*") return std::nullopt;
  std::vector<HashedField> headers;
  std::istringstream words(field.value);
  std::string folder, word;
  while (words >> word) {
    if (word.ends_with('/')) {
      folder = word.starts_with(kOurs) ? word : std::string(kDevice) + word;
      continue;
    }
    if (word.find('.') == word.npos) word += kSuffix;
    HashedField& header = headers.emplace_back(HashedField{prefix + folder + word, {}});
    if (!(words >> header.value)) return std::nullopt;
  }
  return headers;
}

bool tells_all(const HashedField& field, std::span<const HashedField> headers) {
  const auto told = unfolded(field);
  return told && std::ranges::equal(*told, headers, [](const auto& a, const auto& b) {
           return a.name == b.name && b.value.starts_with(a.value);
         });
}

}  // namespace

std::vector<HashedField> fold_headers(std::span<const HashedField> fields) {
  std::vector<HashedField> result;
  while (!fields.empty()) {
    const std::string_view prefix = prefix_of(fields[0].name);
    const auto end = std::ranges::find_if_not(fields, [prefix](const HashedField& field) {
      return is_whole_header(field) && prefix_of(field.name) == prefix;
    });
    auto count = static_cast<std::size_t>(end - fields.begin());
    if (count > 0) {
      const auto headers = fields.first(count);
      HashedField field = folded(headers);
      if (tells_all(field, headers))
        result.push_back(std::move(field));
      else
        result.insert(result.end(), headers.begin(), headers.end());
    } else {
      result.push_back(fields[0]);
      count = 1;
    }
    fields = fields.subspan(count);
  }
  return result;
}

std::vector<HashedField> unfold_headers(std::span<const HashedField> fields) {
  std::vector<HashedField> result;
  for (const HashedField& field : fields) {
    if (const auto headers = unfolded(field))
      result.insert(result.end(), headers->begin(), headers->end());
    else
      result.push_back(field);
  }
  return result;
}

bool is_same_value(std::string_view name, std::string_view a, std::string_view b) {
  if (a == b) return true;
  const std::size_t least = std::min(a.size(), b.size());
  return !prefix_of(name).empty() && least == kStoredHeaderDigits &&
         std::max(a.size(), b.size()) == 2 * sizeof(Digest) &&
         a.substr(0, least) == b.substr(0, least);
}

}  // namespace moejit::runtime
