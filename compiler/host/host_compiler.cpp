// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"

#include "compiler/host/process.h"
#include "compiler/support/file.h"
#include "compiler/support/plain_text.h"
#include "templates/embedded_templates.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

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

// A temporary folder with a text as kernel.cu and the headers that it includes.
Result<TemporaryFolder> folder_with(std::string_view text, const Target& target) {
  MOEJIT_TRY_ASSIGN(const auto closure, templates::include_closure(text, header_overlays(target)));
  MOEJIT_TRY_ASSIGN(TemporaryFolder folder, TemporaryFolder::create());
  MOEJIT_TRY(write_temporary_file(folder.path() / "kernel.cu", text));
  for (const templates::IncludedFile& included : closure) {
    MOEJIT_TRY(write_temporary_file(folder.path() / included.include_name, included.file->text));
  }
  return folder;
}

// Runs the compiler in a folder. All names are relative, so that neither reports nor bytes depend
// on the folder.
Result<ProcessResult> run_compiler(const HostCompiler& compiler, const TemporaryFolder& folder,
                                   std::span<const std::string> options) {
  std::vector<std::string> arguments{compiler.path};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_process(arguments, folder.path());
}

tl::unexpected<Error> compile_error(const HostCompiler& compiler, const ProcessResult& result,
                                    const KernelSource& source) {
  return fail(Stage::kCompile,
              blames_source(result) ? ErrorCode::kCompileFailed : ErrorCode::kCompilerFault,
              fmt::format("kernel {} does not compile for sim: {} ended with exit code {}",
                          source.entry, compiler.version, result.exit_code),
              "a bug in moejit, or a compiler that it was not tested with; --verbose shows the log",
              result.output + "\n" + numbered_lines(source.text));
}

// What kernels call. The C library is in every process, and its names take long to read.
constexpr const char* kLibraries = "-lm";

// Links the shared object of one kernel from the object of its unit, and leaves out what the kernel
// does not use.
Result<KernelBinary> link_kernel(const HostCompiler& compiler, const TemporaryFolder& folder,
                                 const KernelSource& source) {
  MOEJIT_TRY(write_temporary_file(
      folder.path() / "entry.map",
      fmt::format("{{ global: {0}; {0}_description; local: *; }};\n", source.entry)));
  const std::vector<std::string> options{"-shared",
                                         "-nodefaultlibs",
                                         "-s",
                                         "-Wl,--gc-sections",
                                         "-Wl,--version-script=entry.map",
                                         "unit.o",
                                         "-o",
                                         "kernel.so",
                                         kLibraries};
  MOEJIT_TRY_ASSIGN(const ProcessResult result, run_compiler(compiler, folder, options));
  if (result.exit_code != 0) return compile_error(compiler, result, source);
  MOEJIT_TRY_ASSIGN(std::vector<std::byte> bytes, read_binary(folder.path() / "kernel.so"));
  return KernelBinary{source.entry, source.target, std::move(bytes), std::nullopt};
}

// Compiles all texts at once. The error names the first source, whichever source is to blame.
Result<std::vector<Result<KernelBinary>>> compile_whole_unit(
    std::span<const KernelSource> sources) {
  MOEJIT_TRY_ASSIGN(const HostCompiler compiler, find_compiler());
  MOEJIT_TRY_ASSIGN(const TemporaryFolder folder,
                    folder_with(text_of_unit(sources), sources.front().target));
  std::vector<std::string> options = compile_options(compiler.version);
  std::erase(options, "-shared");
  options.insert(options.end(), {"-ffunction-sections", "-fdata-sections", "-I.", "-x", "c++", "-c",
                                 "kernel.cu", "-o", "unit.o"});
  MOEJIT_TRY_ASSIGN(const ProcessResult result, run_compiler(compiler, folder, options));
  if (result.exit_code != 0) return compile_error(compiler, result, sources.front());
  std::vector<Result<KernelBinary>> binaries;
  for (const KernelSource& source : sources) {
    MOEJIT_TRY_ASSIGN(KernelBinary binary, link_kernel(compiler, folder, source));
    binaries.emplace_back(std::move(binary));
  }
  return binaries;
}

}  // namespace

Result<KernelBinary> compile_for_simulator(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const HostCompiler compiler, find_compiler());
  MOEJIT_TRY_ASSIGN(const TemporaryFolder folder, folder_with(source.text, source.target));
  std::vector<std::string> options = compile_options(compiler.version);
  options.insert(options.end(), {"-I.", "-x", "c++", "kernel.cu", "-o", "kernel.so", kLibraries});
  MOEJIT_TRY_ASSIGN(const ProcessResult result, run_compiler(compiler, folder, options));
  if (result.exit_code != 0) return compile_error(compiler, result, source);
  MOEJIT_TRY_ASSIGN(std::vector<std::byte> bytes, read_binary(folder.path() / "kernel.so"));
  return KernelBinary{source.entry, source.target, std::move(bytes), std::nullopt};
}

std::vector<Result<KernelBinary>> compile_unit_for_simulator(
    std::span<const KernelSource> sources) {
  if (sources.empty()) return {};
  if (sources.size() == 1) return {compile_for_simulator(sources.front())};
  if (auto whole = compile_whole_unit(sources)) return std::move(*whole);
  auto binaries = compile_unit_for_simulator(sources.first(sources.size() / 2));
  std::ranges::move(compile_unit_for_simulator(sources.subspan(sources.size() / 2)),
                    std::back_inserter(binaries));
  return binaries;
}

Result<std::string> host_compiler_description() {
  MOEJIT_TRY_ASSIGN(const HostCompiler compiler, find_compiler());
  return fmt::format("{}, {}", compiler.version, compiler.path);
}

namespace {

constexpr std::string_view kHostCompilerField = "compiler=";

Result<std::vector<std::string>> identity_with(const KernelSource& source, std::string compiler) {
  MOEJIT_TRY_ASSIGN(const auto closure,
                    templates::include_closure(source.text, header_overlays(source.target)));
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
