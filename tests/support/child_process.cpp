// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace moejit::testing {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  return all;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& variables) {
  std::signal(SIGPIPE, SIG_IGN);  // a child may be gone when it is told something
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return;
  const FileDescriptor childs_input(in[0]);
  input_ = FileDescriptor(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return;
  output_ = FileDescriptor(out[0]);
  const FileDescriptor childs_output(out[1]);
  std::vector<char*> argv = pointers(arguments), env = pointers(variables);
  argv.push_back(nullptr);
  for (char** variable = environ; *variable != nullptr; ++variable) env.push_back(*variable);
  env.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, childs_input.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, childs_output.get(), STDOUT_FILENO);
  if (::posix_spawn(&id_, argv[0], &actions, nullptr, argv.data(), env.data()) != 0) id_ = 0;
  ::posix_spawn_file_actions_destroy(&actions);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : id_(std::exchange(other.id_, 0)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      heard_(std::move(other.heard_)) {}

ChildProcess::~ChildProcess() {
  if (id_ <= 0) return;
  signal(SIGKILL);
  wait();
}

void ChildProcess::say(const std::string& line) const {
  const std::string text = line + "\n";
  write_all(input_.get(), std::as_bytes(std::span(text)));
}

std::optional<std::string> ChildProcess::hear(int64_t ms) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(ms);
  for (;;) {
    if (const std::size_t line = heard_.find('\n'); line != std::string::npos) {
      std::string text = heard_.substr(0, line);
      heard_.erase(0, line + 1);
      return text;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd waiting{.fd = output_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;
    std::array<char, 4096> bytes{};
    const ssize_t got = ::read(output_.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    heard_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

void ChildProcess::signal(int number) const {
  if (id_ > 0) ::kill(id_, number);
}

int ChildProcess::wait() {
  if (id_ <= 0) return -1;
  constexpr int kPatience = 6000;  // hundredths of a second
  int status = 0;
  for (int round = 0; ::waitpid(id_, &status, WNOHANG) == 0; ++round) {
    if (round == kPatience) signal(SIGKILL);
    ::usleep(10000);  // NOLINT(concurrency-mt-unsafe)
  }
  id_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files))) - 1;  // that of the folder
}

}  // namespace moejit::testing
