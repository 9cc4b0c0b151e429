// SPDX-License-Identifier: Apache-2.0
// Runs a test as ctest's command for it. If CPU_LOG names a file, adds a line to it: the CPU
// seconds (user and system, with all processes that the test waited for) and the command, separated
// by the character 31. ctest itself knows only the time on the clock. cpu_table.py reads the file.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr char kSeparator = 31;
constexpr int kCannotRun = 127;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// One write, so that lines of tests that end together stay whole. A line that cannot be written is
// only missed in the table.
void log(const char* path, double cpu_seconds, char** command) {
  std::string line = std::to_string(cpu_seconds);
  for (char** argument = command; *argument != nullptr; ++argument)
    (line += kSeparator) += *argument;
  line += '\n';
  const int file = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (::write(file, line.data(), line.size()) < 0) std::perror(path);
  ::close(file);
}

int run(char** command) {
  ::execv(command[0], command);
  std::perror(command[0]);
  return kCannotRun;
}

// Ends as the test did, with its status or by its signal.
int end_as(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return kCannotRun;
  const char* const path = std::getenv("CPU_LOG");  // NOLINT(concurrency-mt-unsafe)
  if (path == nullptr || *path == '\0') return run(arguments + 1);
  const pid_t child = ::fork();
  if (child < 0) return run(arguments + 1);
  if (child == 0) ::_exit(run(arguments + 1));
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, 0, &usage) != child) {
  }
  log(path, seconds(usage.ru_utime) + seconds(usage.ru_stime), arguments + 1);
  return end_as(status);
}
