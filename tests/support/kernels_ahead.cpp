// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels_ahead.h"

#include "compiler/compiler.h"
#include "compiler/support/digest.h"
#include "compiler/support/file.h"
#include "tests/support/test_engine.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace moejit::testing {
namespace {

std::mutex used_mutex;
std::set<std::string> used_headers;

void note_headers(std::string_view text) {
  constexpr std::string_view kInclude = "#include \"";
  const std::lock_guard lock(used_mutex);
  for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
       at = text.find(kInclude, at)) {
    at += kInclude.size();
    used_headers.emplace(text.substr(at, text.find('"', at) - at));
  }
}

// The file that the child writes to: for each kernel two lengths, its entry and its text.
int notes = -1;
bool is_noting = false;

void note(const compiler::KernelSource& source) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::uint64_t lengths[] = {source.entry.size(), source.text.size()};
  static_cast<void>(write_all(notes, std::as_bytes(std::span(lengths))));
  static_cast<void>(write_all(notes, std::as_bytes(std::span(source.entry))));
  static_cast<void>(write_all(notes, std::as_bytes(std::span(source.text))));
}

// Returns each source that was noted once. A note that a crash cut off is left out.
std::vector<compiler::KernelSource> noted_sources(std::string_view text,
                                                  const compiler::Target& target) {
  std::map<std::string, compiler::KernelSource> sources;
  std::uint64_t lengths[2];
  while (text.size() >= sizeof(lengths)) {
    std::memcpy(lengths, text.data(), sizeof(lengths));
    text.remove_prefix(sizeof(lengths));
    if (text.size() < lengths[0] + lengths[1]) break;
    compiler::KernelSource source{.entry = std::string(text.substr(0, lengths[0])),
                                  .text = std::string(text.substr(lengths[0], lengths[1])),
                                  .target = target};
    text.remove_prefix(lengths[0] + lengths[1]);
    sources.emplace(source.text, std::move(source));
  }
  std::vector<compiler::KernelSource> list;
  for (auto& [key, source] : sources) list.push_back(std::move(source));
  return list;
}

// Returns the file in which a program notes that the folder has its kernels; empty without a
// folder.
std::string record_path() {
  const std::string folder = test_cache_folder();
  return folder.empty() ? "" : fmt::format("{}/ahead-{}", folder, program_invocation_short_name);
}

// Returns what decides which kernels are asked for: the program, which holds all templates, and the
// filter. Of a folder that was emptied since, or another compiler, it knows nothing: then kernels
// are compiled alone.
std::string run_description(std::string_view filter, const compiler::Target& target) {
  const auto program = read_file("/proc/self/exe");
  if (!program) return {};
  return fmt::format("{:02x} {} {}\n", fmt::join(xxh3_128(*program).bytes, ""), filter,
                     to_string(target));
}

[[noreturn]] void run_noting(const std::function<int()>& run_tests) {
  const rlimit no_core{};  // a case may crash that got no kernel
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  is_noting = true;
  ::_exit(run_tests());
}

}  // namespace

Result<std::shared_ptr<const compiler::KernelBinary>> obtain_test_kernel(
    const compiler::KernelSource& source) {
  if (!is_noting) {
    note_headers(source.text);
    return test_engine().binary(source);
  }
  note(source);
  return fail(Stage::kCompile, ErrorCode::kCacheMiss, source.entry + " is noted and not compiled");
}

Result<void> note_kernels_of(const compiler::Plan& plan) {
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelSource source, emit_kernel(kernel, plan.target));
    if (is_noting)
      note(source);
    else
      note_headers(source.text);
  }
  if (!is_noting) return {};
  return fail(Stage::kCompile, ErrorCode::kCacheMiss, plan.subject + " is noted and not compiled");
}

void record_headers() {
  const std::string folder = MOEJIT_BINARY_DIR "/kernel-headers";
  std::error_code ignored;
  std::filesystem::create_directory(folder, ignored);
  const std::lock_guard lock(used_mutex);
  static_cast<void>(write_file(fmt::format("{}/{}", folder, program_invocation_short_name),
                               fmt::format("{}\n", fmt::join(used_headers, "\n"))));
}

void obtain_kernels_ahead(std::string_view filter, const compiler::Target& target,
                          const std::function<int()>& run_tests) {
  const std::string path = record_path(), description = run_description(filter, target);
  if (!path.empty() && read_text_file(path) == description) return;
  notes = memfd_create("moejit_notes", MFD_CLOEXEC);
  const pid_t child = notes < 0 ? -1 : ::fork();
  if (child == 0) run_noting(run_tests);
  if (child < 0 || ::waitpid(child, nullptr, 0) != child) return;
  const auto text = read_text_file("/proc/self/fd/" + std::to_string(notes));
  ::close(notes);
  if (!text) return;
  // Errors show where a test asks for the kernel.
  const auto obtained = test_engine().obtain_all(noted_sources(*text, target));
  if (obtained && !path.empty()) static_cast<void>(write_file(path, description));
}

}  // namespace moejit::testing
