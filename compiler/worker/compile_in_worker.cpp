// SPDX-License-Identifier: Apache-2.0
#include "compiler/worker/compile_in_worker.h"

#include "compiler/compiler.h"
#include "compiler/host/process.h"
#include "compiler/kernel_source.h"
#include "compiler/nvrtc/compile.h"
#include "compiler/support/exhausted.h"
#include "compiler/support/file.h"
#include "compiler/support/fork.h"
#include "compiler/worker/messages.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fmt/core.h>
#include <optional>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration): macOS has no declaration

namespace moejit::compiler {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kLargestMessage = std::int64_t{256} << 20;
constexpr std::int64_t kLargestLog = 65536;

tl::unexpected<Error> fault(const KernelSource& source, std::string_view what,
                            std::string detail = {}, std::string hint = {}) {
  return fail(Stage::kCompile, ErrorCode::kCompilerFault,
              fmt::format("kernel {}: {}", source.entry, what), std::move(hint), std::move(detail));
}

// Standard input, output and error of the worker are files in memory. So nothing can block on them,
// and a worker that dies early raises no signal here.
struct Files {
  std::array<FileDescriptor, 3> all;

  // Creates the files. Returns 0 or errno.
  int create(std::span<const std::byte> input) {
    for (FileDescriptor& file : all) {
      file = FileDescriptor(memfd_create("moejit-compile", MFD_CLOEXEC));
      if (!file) return errno;
    }
    if (const int error = write_all(all[0].get(), input); error != 0) return error;
    return lseek(all[0].get(), 0, SEEK_SET) == 0 ? 0 : errno;
  }
  // Returns what the worker wrote; the offset is shared with it.
  std::vector<std::byte> written(std::size_t which, std::int64_t most) const {
    std::vector<std::byte> bytes;
    if (lseek(all[which].get(), 0, SEEK_SET) != 0) return {};
    if (read_all(all[which].get(), most, bytes) != 0) return {};
    return bytes;
  }
};

// Starts the worker. Returns 0 or errno.
int start(const std::string& program, const Files& files, pid_t& process) {
  const std::string parent = std::to_string(getpid());
  std::array<std::string, 3> words = {program, "compile-worker", parent};
  std::array<char*, 4> argv = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i)
    posix_spawn_file_actions_adddup2(&actions, files.all[static_cast<std::size_t>(i)].get(), i);
  const int error = posix_spawn(&process, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

struct Ending {
  std::optional<int> status;  // none if the host program takes its children's status
  bool was_stopped = false;
  bool was_late = false;
};

Ending wait_for(pid_t process, const std::stop_token& stop) {
  Ending ending;
  const auto end = std::chrono::steady_clock::now() + kLongestCompile;
  for (milliseconds pause{1};; pause = std::min(pause * 2, milliseconds{10})) {
    int status = 0;
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process) ending.status = status;
    if (ended == process || (ended < 0 && errno != EINTR)) return ending;
    const bool is_killed = ending.was_stopped || ending.was_late;
    if (!is_killed) {
      ending.was_stopped = stop.stop_requested();
      ending.was_late = std::chrono::steady_clock::now() >= end;
      if (ending.was_stopped || ending.was_late) kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(pause);
  }
}

std::string text_of(const Ending& ending) {
  return ending.status ? wait_status_text(*ending.status) : "ended in an unknown way";
}

}  // namespace

Result<CompiledKernel> compile_in_worker(const KernelSource& source, const std::string& program,
                                         const std::stop_token& stop) {
  MOEJIT_TRY_ASSIGN(const KernelKey key, kernel_key(source));
  const auto path = find_program(program);
  if (!path) return fault(source, fmt::format("the compile worker {} is not a program", program));
  Files files;
  if (const int error = files.create(encode_request({source, key.digest})); error != 0)
    return fault(
        source,
        fmt::format("the files of the compile worker cannot be made: {}", errno_text(error)), {},
        hint_for_errno(error));
  pid_t process = 0;
  if (const int error = start(path->string(), files, process); error != 0)
    return fault(
        source,
        fmt::format("cannot start the compile worker {}: {}", path->string(), errno_text(error)),
        {}, hint_for_errno(error));
  const Ending ending = wait_for(process, stop);
  if (auto reply = decode_reply(files.written(1, kLargestMessage), source))
    return *std::move(reply);
  if (ending.was_stopped)
    return fail(Stage::kCompile, ErrorCode::kInterrupted,
                fmt::format("compiling kernel {} was given up", source.entry));
  if (ending.was_late)
    return fault(source, fmt::format("the compile worker {} did not end within {} s and was killed",
                                     path->string(), kLongestCompile / std::chrono::seconds(1)));
  const std::vector<std::byte> log = files.written(2, kLargestLog);
  return fault(source, fmt::format("the compile worker {} {}", path->string(), text_of(ending)),
               {reinterpret_cast<const char*>(log.data()), log.size()});
}

namespace {

constexpr std::int64_t kLargestRequest = std::int64_t{64} << 20;

Result<CompiledKernel> answer(const WorkerRequest& request) {
  MOEJIT_TRY_ASSIGN(const KernelKey key, kernel_key(request.source));
  if (key.digest != request.key)
    return fail(
        Stage::kCompile, ErrorCode::kCompilerFault,
        fmt::format("kernel {}: the compile worker would make it with another moejit {} or "
                    "NVRTC (key {}) than asked for (key {})",
                    request.source.entry, MOEJIT_VERSION, key.digest.hex(), request.key.hex()),
        "let MOEJIT_COMPILE_WORKER name the program moejit of the same installation");
  return compile_with_nvrtc_and_time(request.source);
}

tl::unexpected<Error> no_message(std::string_view what) {
  return fail(Stage::kCommand, ErrorCode::kUsage, std::string(what),
              "moejit starts this command itself, see MOEJIT_COMPILE_WORKER");
}

}  // namespace

Result<void> serve_compile_worker(int parent) {
  // The process that asked may be gone already.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
    return no_message(fmt::format("process {} is not my parent", parent));
  // Text that a library prints must not get between the bytes of the answer.
  FileDescriptor output(dup(STDOUT_FILENO));
  if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return no_message("no standard output");
  std::vector<std::byte> bytes;
  if (const int error = read_all(STDIN_FILENO, kLargestRequest, bytes); error != 0)
    return no_message(fmt::format("reading the request: {}", errno_text(error)));
  const auto request = decode_request(bytes);
  if (!request) return no_message("standard input holds no request");
  if (const int error = write_all(output.get(), encode_reply(answer(*request))); error != 0)
    return no_message(fmt::format("writing the reply: {}", errno_text(error)));
  return {};
}

}  // namespace moejit::compiler
