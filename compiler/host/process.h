// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "compiler/support/file.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::compiler {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal number if a signal ended it
  std::string output;  // standard output and standard error, as they came; of a flood the beginning
};

// How long a compiler may take for a kernel: far longer than any needs, on any machine.
inline constexpr std::chrono::milliseconds kLongestCompile = std::chrono::minutes(10);

// Runs a program without a shell and waits for it. `arguments` begin with the program's path.
// `folder` is its working directory, where it also makes its temporary files. After `limit` the
// program is killed with all that it started in its process group: error kCompilerFault.
Result<ProcessResult> run_process(const std::vector<std::string>& arguments,
                                  const std::filesystem::path& folder,
                                  std::chrono::milliseconds limit = kLongestCompile);

// Writes a file, and makes the folders between it and the temporary folder.
Result<void> write_temporary_file(const std::filesystem::path& path, std::string_view text);

// Returns the executable file that `name` means: itself if it has a slash, else the first on the
// PATH.
std::optional<std::filesystem::path> find_program(std::string_view name);

// A new folder that only this user can enter; the destructor removes it with its content. The first
// one of a process also removes folders that dead processes of this user left.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept
      : name_(std::exchange(other.name_, {})), folder_(std::move(other.folder_)) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  // Returns a path that leads to the open folder, here and in a child that run_process() starts. If
  // somebody puts something else in the folder's place, that is never used.
  std::filesystem::path path() const;

 private:
  TemporaryFolder(std::filesystem::path name, FileDescriptor folder)
      : name_(std::move(name)), folder_(std::move(folder)) {}
  std::filesystem::path name_;
  FileDescriptor folder_;
};

}  // namespace moejit::compiler
