// SPDX-License-Identifier: Apache-2.0
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <stdlib.h>  // mkdtemp
#include <string>
#include <system_error>

namespace moejit::testing {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

}  // namespace

TempDir::TempDir(std::string_view name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return;
  std::string plain_name(name.substr(0, 100));
  std::replace_if(
      plain_name.begin(), plain_name.end(), [](char c) { return !is_plain(c); }, '_');
  std::string folder = parent / ("moejit-" + plain_name + "-XXXXXX");
  if (mkdtemp(folder.data()) != nullptr) path_ = folder;
}

TempDir::~TempDir() {
  if (path_.empty() || is_kept_) return;
  std::error_code ignored;  // a folder that cannot be removed is not worth a failure
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace moejit::testing
