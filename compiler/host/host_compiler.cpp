// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"

#include "compiler/host/process.h"
#include "compiler/support/checksum.h"
#include "compiler/support/digest.h"
#include "compiler/support/dynamic_library.h"
#include "compiler/support/env.h"
#include "compiler/support/file.h"
#include "compiler/support/fork.h"
#include "compiler/support/numbered_lines.h"
#include "templates/embedded_templates.h"

#include <array>
#include <fmt/core.h>
#include <map>
#include <mutex>

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

struct HostCompiler {
  std::string path;
  std::string version;   // first line of --version
  std::string identity;  // the same with a digest of what tells compilers of this line apart
};

// Returns what tells one program from another: its build id, else a checksum of the file, as of the
// script of a wrapper.
Result<std::string> program_identity(const std::string& path) {
  if (std::string id = build_id_of_file(path); !id.empty()) return id;
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path));
  const Checksum checksum = xxh3_128(bytes);
  return std::string(reinterpret_cast<const char*>(checksum.bytes.data()), checksum.bytes.size());
}

// Asks a compiler who it is.
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

// Finds the compiler. The PATH is searched once per process; $MOEJIT_CXX is read each time.
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

// Leave out passes of g++ that take a seventh of a kernel's compile time and make kernels no
// faster: most of a launch passes in the simulator's library. clang refuses these options.
constexpr std::array kWithoutSomePasses{
    "-fno-tree-pta",      "-fno-tree-dominator-opts", "-fno-guess-branch-probability",
    "-fno-if-conversion", "-fno-if-conversion2",      "-fno-tree-slsr",
    "-fno-tree-sink",
};

// Returns the options for a compiler whose version is this line. They forbid contraction, so that
// fp32 arithmetic rounds where the source says so, and everything that needs the standard library:
// exceptions, run-time types, its shared object. They have -O1, since -O2 takes a third longer to
// compile and makes kernels no faster.
std::vector<std::string> compile_options(std::string_view version) {
  std::vector<std::string> options{"-std=c++20",
                                   "-O1",
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
  if (version.find("clang") == std::string_view::npos)
    options.insert(options.end(), kWithoutSomePasses.begin(), kWithoutSomePasses.end());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    options.insert(options.end(), {"-mavx2", "-mfma"});
  }
#endif
  return options;
}

// Returns whether the compiler blames a line ("kernel.cu:7:2: error: ..."). A compiler that was
// killed or whose disk is full names no line.
bool blames_source(const ProcessResult& result) {
  constexpr std::string_view kError = "error: ";
  const std::string_view log = result.output;
  if (result.exit_code != 1) return false;
  for (std::size_t at = log.find(kError); at != std::string_view::npos;
       at = log.find(kError, at + 1)) {
    std::string_view before = log.substr(0, at);
    if (before.ends_with("fatal ")) before.remove_suffix(6);
    if (before.size() > 2 && before.ends_with(": ") && before[before.size() - 3] >= '0' &&
        before[before.size() - 3] <= '9')
      return true;
  }
  return false;
}

Result<std::vector<std::byte>> read_binary(const fs::path& path) {
  MOEJIT_TRY_ASSIGN(std::vector<std::byte> bytes, read_file(path.string()));
  if (!bytes.empty()) return bytes;
  return fail(Stage::kCompile, ErrorCode::kFileRead,
              fmt::format("the compiler's output {} is empty", path.string()));
}

}  // namespace

Result<KernelBinary> compile_for_simulator(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const HostCompiler compiler, find_compiler());
  MOEJIT_TRY_ASSIGN(const auto closure,
                    templates::include_closure(source.text, templates::Flavor::kSim));
  MOEJIT_TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create());
  // All names are relative, so that neither reports nor bytes depend on the folder.
  MOEJIT_TRY(write_temporary_file(folder.path() / "kernel.cu", source.text));
  for (const templates::IncludedFile& included : closure) {
    MOEJIT_TRY(write_temporary_file(folder.path() / included.include_name, included.file->text));
  }
  std::vector<std::string> arguments{compiler.path};
  for (std::string& option : compile_options(compiler.version))
    arguments.push_back(std::move(option));
  for (const char* argument : {"-I.", "-x", "c++", "kernel.cu", "-o", "kernel.so", "-lm", "-lc"}) {
    arguments.emplace_back(argument);
  }
  MOEJIT_TRY_ASSIGN(const ProcessResult result, run_process(arguments, folder.path()));
  if (result.exit_code != 0) {
    return fail(
        Stage::kCompile,
        blames_source(result) ? ErrorCode::kCompileFailed : ErrorCode::kCompilerFault,
        fmt::format("kernel {} does not compile for sim: {} ended with exit code {}", source.entry,
                    compiler.version, result.exit_code),
        "a bug in moejit, or a compiler that it was not tested with; --verbose shows the log",
        result.output + "\n" + numbered_lines(source.text));
  }
  MOEJIT_TRY_ASSIGN(std::vector<std::byte> bytes, read_binary(folder.path() / "kernel.so"));
  return KernelBinary{source.entry, source.target, std::move(bytes), std::nullopt};
}

Result<std::string> host_compiler_description() {
  MOEJIT_TRY_ASSIGN(const HostCompiler compiler, find_compiler());
  return fmt::format("{}, {}", compiler.version, compiler.path);
}

namespace {

constexpr std::string_view kHostCompilerField = "compiler=";

Result<std::vector<std::string>> identity_with(const KernelSource& source, std::string compiler) {
  MOEJIT_TRY_ASSIGN(const auto closure,
                    templates::include_closure(source.text, templates::Flavor::kSim));
  std::string options;
  for (const std::string& option : compile_options(compiler)) options += " " + option;
  std::vector<std::string> fields{std::move(compiler)};
  fields.push_back("options=" + options.substr(1));
  for (const templates::IncludedFile& included : closure) {
    fields.push_back(fmt::format("header {}={}", included.include_name, included.file->sha256));
  }
  return fields;
}

}  // namespace

bool is_host_compiler_field(std::string_view field) {
  return field.starts_with(kHostCompilerField);
}

Result<std::vector<std::string>> host_toolchain_identity(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const HostCompiler compiler, find_compiler());
  return identity_with(source, fmt::format("{}{}", kHostCompilerField, compiler.identity));
}

Result<std::optional<std::vector<std::string>>> host_toolchain_identity(
    const KernelSource& source, std::span<const std::string> compiler) {
  if (compiler.size() != 1 || !is_host_compiler_field(compiler[0])) return std::nullopt;
  return identity_with(source, compiler[0]);
}

}  // namespace moejit::compiler
