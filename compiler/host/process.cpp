// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/process.h"

#include "compiler/support/env.h"
#include "compiler/support/exhausted.h"
#include "compiler/support/temporary_files.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <span>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration): macOS has no declaration

namespace moejit::compiler {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{16} << 20;

tl::unexpected<Error> system_error(std::string_view what, int number) {
  return fail(Stage::kCompile, ErrorCode::kCompilerFault,
              fmt::format("{}: {}", what, errno_text(number)), hint_for_errno(number));
}

// How a program ended, and whether it was killed at its limit.
struct Watched {
  ProcessResult result;
  bool is_late = false;
};

// Reads what the program writes until it has ended. Processes that it left behind may still have
// its output open, so this does not wait for the end of the output.
Watched watch(pid_t process, int output, Clock::time_point end) {
  Watched watched;
  std::array<char, 4096> buffer;
  int status = 0;
  for (bool has_ended = false, is_read = false; !(has_ended && is_read);) {
    if (!has_ended) {
      const pid_t ended = ::waitpid(process, &status, WNOHANG);
      // A host that takes its children's status leaves none to us (ECHILD).
      has_ended = ended == process || (ended < 0 && errno != EINTR);
    }
    pollfd waiting{.fd = output, .events = POLLIN, .revents = 0};
    constexpr int kRoundMs = 20;
    if (!is_read && ::poll(&waiting, 1, has_ended ? 0 : kRoundMs) > 0) {
      const ssize_t count = ::read(output, buffer.data(), buffer.size());
      is_read = count == 0 || (count < 0 && errno != EINTR);
      if (count > 0 && watched.result.output.size() < kMostOutput)
        watched.result.output.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (has_ended) {
      is_read = true;
    } else if (is_read) {
      ::poll(nullptr, 0, 1);
    }
    if (!has_ended && !watched.is_late && Clock::now() >= end) {
      watched.is_late = true;
      ::kill(-process, SIGKILL);
    }
  }
  watched.result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return watched;
}

// Returns the environment of a child whose temporary files are in its working directory.
std::vector<char*> child_environment() {
  static std::array<char, 9> temporary = {"TMPDIR=."};
  std::vector<char*> variables = {temporary.data()};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string_view(*variable).starts_with("TMPDIR=")) variables.push_back(*variable);
  variables.push_back(nullptr);
  return variables;
}

// Starts the program in a process group of its own. Returns 0 or errno.
int start(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
          int output, pid_t& process) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  const int error = posix_spawn(&process, argv[0], &actions, &attributes, argv.data(),
                                child_environment().data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

constexpr std::string_view kFolderPrefix = "moejit-compile-";

// Removes folders that dead processes of this user left in the folder of temporary files.
void sweep_folders(const std::string& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    struct stat status {};
    if (!name.starts_with(kFolderPrefix) || ::lstat(entry->path().c_str(), &status) != 0 ||
        !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
      continue;
    std::error_code ignored;
    if (is_stale_temporary(name.substr(kFolderPrefix.size()), ::time(nullptr) - status.st_mtime))
      std::filesystem::remove_all(entry->path(), ignored);
  }
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& arguments,
                                  const std::filesystem::path& folder,
                                  std::chrono::milliseconds limit) {
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return system_error("no pipe", errno);
  const FileDescriptor output(pipe_ends[0]);
  FileDescriptor input(pipe_ends[1]);
  pid_t process = 0;
  const int error = start(arguments, folder, input.get(), process);
  input.close();
  if (error != 0) return system_error("cannot start " + arguments[0], error);
  Watched watched = watch(process, output.get(), Clock::now() + limit);
  if (!watched.is_late) return std::move(watched.result);
  return fail(
      Stage::kCompile, ErrorCode::kCompilerFault,
      fmt::format("{} did not end within {} ms and was killed", arguments[0], limit.count()),
      "run it by hand: it hangs, or the machine is overloaded", watched.result.output);
}

Result<void> write_temporary_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;  // opening the file fails for the same reason
  std::filesystem::create_directories(path.parent_path(), ignored);
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  int error = file ? write_all(file.get(), std::as_bytes(std::span(text))) : errno;
  if (error == 0) error = file.close();
  if (error == 0) return {};
  std::string hint = hint_for_errno(error);
  return fail(
      Stage::kCompile, ErrorCode::kFileWrite,
      fmt::format("cannot write the temporary file {}: {}", path.string(), errno_text(error)),
      hint.empty() ? "set TMPDIR to a folder that can be written" : std::move(hint));
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
  const std::string parent = environment(Variable::kTmpdir).value_or("/tmp");
  static std::atomic<pid_t> swept_by = 0;  // not by the parent of a fork()
  if (swept_by.exchange(::getpid()) != ::getpid()) sweep_folders(parent);
  std::string name = fmt::format("{}/{}{}-XXXXXX", parent, kFolderPrefix, temporary_name());
  const auto refuse = [&](int error, std::string_view why = {}) {
    std::string hint = hint_for_errno(error);
    if (hint.empty()) hint = "set TMPDIR to a folder that can be written";
    ::rmdir(name.c_str());
    return fail(Stage::kCompile, ErrorCode::kFileWrite,
                fmt::format("cannot make a temporary folder {}: {}", name,
                            why.empty() ? errno_text(error) : why),
                std::move(hint));
  };
  if (mkdtemp(name.data()) == nullptr) return refuse(errno);
  FileDescriptor folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!folder || ::fstat(folder.get(), &status) != 0) return refuse(errno);
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return refuse(0, "somebody else put another one in its place");
  return TemporaryFolder(std::filesystem::absolute(name), std::move(folder));
}

std::filesystem::path TemporaryFolder::path() const {
  return fmt::format("/proc/self/fd/{}", folder_.get());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!name_.empty()) std::filesystem::remove_all(name_, ignored);
}

}  // namespace moejit::compiler
