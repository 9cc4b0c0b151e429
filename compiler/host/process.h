// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal number if a signal ended it
  std::string output;  // standard output and standard error, as they came
};

// Runs a program without a shell and waits for it. `arguments` begin with the program's path.
Result<ProcessResult> run_process(const std::vector<std::string>& arguments,
                                  const std::filesystem::path& folder);

// Returns the executable file that `name` means: itself if it has a slash, else the first on the
// PATH.
std::optional<std::filesystem::path> find_program(std::string_view name);

// A new folder that only this user can enter; the destructor removes it with its content.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace moejit::compiler
