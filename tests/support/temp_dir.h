// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace moejit::testing {

// A new private folder below the system's folder for temporary files, mode 0700. The destructor
// removes it with all it holds, unless keep() was called. See TestDir in matchers.h for one that
// stays when the test has failed.
class TempDir {
 public:
  // `name` goes into the folder's name; characters other than letters, digits, '-' and '_' become
  // '_'. Where the folder cannot be made, path() is empty.
  explicit TempDir(std::string_view name = "test");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view file) const { return path_ / file; }
  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  bool is_kept_ = false;
};

}  // namespace moejit::testing
