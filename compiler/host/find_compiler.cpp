// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"
#include "compiler/host/process.h"
#include "compiler/support/digest.h"
#include "compiler/support/dynamic_library.h"
#include "compiler/support/env.h"
#include "compiler/support/file.h"
#include "compiler/support/fork.h"

#include <array>
#include <fmt/core.h>
#include <map>
#include <mutex>

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

// Returns what tells one program from another: its build id, or without one, such as in a wrapper
// script, a checksum of the file.
Result<std::string> program_identity(const std::string& path) {
  if (std::string id = build_id_of_file(path); !id.empty()) return id;
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path));
  const Checksum checksum = xxh3_128(bytes);
  return std::string(reinterpret_cast<const char*>(checksum.bytes.data()), checksum.bytes.size());
}

// Asks a compiler for its version.
Result<HostCompiler> identify(const std::string& path) {
  constexpr std::chrono::seconds kLongestAnswer{60};
  MOEJIT_TRY_ASSIGN(const ProcessResult result,
                    run_process({path, "--version"}, "/", kLongestAnswer));
  const std::string line = result.output.substr(0, result.output.find('\n'));
  if (result.exit_code != 0 || line.empty()) {
    return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
                fmt::format("{} --version failed with exit code {}", path, result.exit_code),
                "set MOEJIT_CXX to a C++ compiler", result.output);
  }
  MOEJIT_TRY_ASSIGN(const std::string program, program_identity(path));
  constexpr std::size_t kDigits = 16;
  return HostCompiler{
      path, line,
      fmt::format("{} [{}]", line, sha256(result.output + program).hex().substr(0, kDigits))};
}

// How g++ optimises. -Og takes half as long as -O1. The two passes that it lacks make kernels
// faster and smaller, so they save more than they take. The others make kernels no faster, since
// most of a launch is spent in the simulator's library. clang refuses these options.
constexpr std::array kOptimisationOfGcc{
    "-Og",
    "-ftree-sra",
    "-finline-functions-called-once",
    "-fno-tree-dominator-opts",
    "-fno-guess-branch-probability",
    "-fno-tree-slsr",
    "-fno-tree-sink",
};

}  // namespace

Result<HostCompiler> find_compiler() {
  const std::optional<std::string> wanted = environment(Variable::kCxx);
  std::optional<fs::path> path;
  if (wanted) {
    path = find_program(*wanted);
    if (!path) {
      return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
                  fmt::format("MOEJIT_CXX names {}, which is not a program", *wanted));
    }
  }
  for (const std::string_view name : {"c++", "g++", "clang++"}) {
    if (!path) path = find_program(name);
  }
  if (!path) {
    return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
                "the target sim needs a C++ compiler, but there is no c++, g++ or clang++ on the "
                "PATH",
                "install g++ or clang, or set MOEJIT_CXX to a compiler");
  }
  static ForkMutex mutex;
  static std::map<std::string, HostCompiler> compilers;
  const std::lock_guard lock(mutex);
  auto known = compilers.find(path->string());
  if (known == compilers.end()) {
    MOEJIT_TRY_ASSIGN(HostCompiler compiler, identify(path->string()));
    known = compilers.emplace(path->string(), std::move(compiler)).first;
  }
  return known->second;
}

std::vector<std::string> compile_options(std::string_view version) {
  std::vector<std::string> options{"-std=c++20",
                                   "-fPIC",
                                   "-shared",
                                   "-w",
                                   "-fvisibility=hidden",
                                   "-ffp-contract=off",
                                   "-fno-math-errno",
                                   "-fno-strict-aliasing",
                                   "-fno-exceptions",
                                   "-fno-rtti",
                                   "-fno-stack-protector",
                                   "-fno-asynchronous-unwind-tables",
                                   "-nodefaultlibs"};
  if (version.find("clang") != std::string_view::npos)
    options.emplace_back("-O1");
  else
    options.insert(options.end(), kOptimisationOfGcc.begin(), kOptimisationOfGcc.end());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    options.insert(options.end(), {"-mavx2", "-mfma"});
  }
#endif
  return options;
}

}  // namespace moejit::compiler
