// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/process.h"

#include "compiler/support/env.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration): macOS has no declaration

namespace moejit::compiler {
namespace {

tl::unexpected<Error> system_error(std::string_view what, int number) {
  return fail(Stage::kCompile, ErrorCode::kCompilerFault,
              fmt::format("{}: {}", what, std::strerror(number)));
}

std::string read_to_end(int file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& arguments,
                                  const std::filesystem::path& folder) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return system_error("no pipe", errno);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  pid_t process = 0;
  const int error = posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  ProcessResult result;
  if (error == 0) {
    result.output = read_to_end(pipe_ends[0]);
    result.exit_code = wait_for(process);
  }
  close(pipe_ends[0]);
  if (error != 0) return system_error("cannot start " + arguments[0], error);
  return result;
}

std::optional<std::filesystem::path> find_program(std::string_view name) {
  const auto is_program = [](const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string_view::npos) {
    const std::filesystem::path path = name;
    return is_program(path) ? std::optional(std::filesystem::absolute(path)) : std::nullopt;
  }
  const std::string path = environment(Variable::kPath).value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::filesystem::path folder = path.substr(begin, end - begin);
    // Relative entries would depend on the working folder and are skipped.
    if (folder.is_absolute() && is_program(folder / name)) return folder / name;
    begin = end + 1;
  }
  return std::nullopt;
}

Result<TemporaryFolder> TemporaryFolder::create() {
  std::string pattern = environment(Variable::kTmpdir).value_or("/tmp") + "/moejit-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return fail(Stage::kCompile, ErrorCode::kFileWrite,
                fmt::format("cannot make a temporary folder {}: {}", pattern, std::strerror(errno)),
                "set TMPDIR to a folder that can be written");
  }
  return TemporaryFolder(pattern);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace moejit::compiler
