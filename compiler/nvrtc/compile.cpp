// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/compile.h"

#include "compiler/compiler.h"
#include "compiler/nvrtc/compile_options.h"
#include "compiler/nvrtc/compile_reports.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "compiler/nvrtc/resource_usage.h"
#include "compiler/support/fork.h"
#include "compiler/support/plain_text.h"
#include "templates/embedded_templates.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <utility>

namespace moejit::compiler {
namespace {

using templates::IncludedFile;

// Owner of NVRTC's handle of one compilation.
class Program {
 public:
  Program(const NvrtcApi& api, NvrtcProgram* handle) : api_(&api), handle_(handle) {}
  Program(Program&& other) noexcept
      : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program& operator=(Program&&) = delete;
  ~Program() {
    if (handle_ != nullptr) api_->destroy_program(&handle_);
  }

  NvrtcResult compile(const std::vector<std::string>& options, const std::stop_token& stop) {
    if (stop.stop_possible() && api_->set_flow_callback != nullptr)
      api_->set_flow_callback(
          handle_,
          [](void* token, void*) {
            return static_cast<std::stop_token*>(token)->stop_requested() ? 1 : 0;
          },
          const_cast<std::stop_token*>(&stop));
    std::vector<const char*> pointers;
    pointers.reserve(options.size());
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return api_->compile_program(handle_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string log() const {
    std::size_t bytes = 0;
    if (api_->get_log_size(handle_, &bytes) != 0 || bytes <= 1) return {};
    std::string text(bytes, '\0');
    if (api_->get_log(handle_, text.data()) != 0) return {};
    text.resize(text.find('\0'));
    return text;
  }

  std::vector<std::byte> cubin() const {
    std::size_t bytes = 0;
    if (api_->get_cubin_size(handle_, &bytes) != 0) return {};
    std::vector<std::byte> image(bytes);
    if (api_->get_cubin(handle_, reinterpret_cast<char*>(image.data())) != 0) return {};
    return image;
  }

 private:
  const NvrtcApi* api_;
  NvrtcProgram* handle_;
};

Result<Program> create_program(const NvrtcApi& api, const KernelSource& source,
                               const std::vector<IncludedFile>& headers) {
  std::vector<std::string> texts;  // NVRTC needs a zero byte at the end
  std::vector<const char*> text_pointers;
  std::vector<const char*> names;
  texts.reserve(headers.size());
  for (const IncludedFile& header : headers) {
    texts.emplace_back(header.file->text);
    text_pointers.push_back(texts.back().c_str());
    names.push_back(header.include_name.c_str());
  }
  NvrtcProgram* handle = nullptr;
  const std::string name = source.entry + ".cu";
  const NvrtcResult result =
      api.create_program(&handle, source.text.c_str(), name.c_str(),
                         static_cast<int>(headers.size()), text_pointers.data(), names.data());
  if (result != 0) {
    return fail(Stage::kCompile, ErrorCode::kCompilerFault,
                fmt::format("kernel {}: NVRTC did not take the program: {}", source.entry,
                            api.get_error_string(result)));
  }
  return Program(api, handle);
}

constexpr std::string_view kBugHint =
    "this is a bug in moejit or in a stage of yours; the log (--verbose) names the line";

tl::unexpected<Error> compile_error(const NvrtcApi& api, const KernelSource& source,
                                    const std::vector<std::string>& options, std::string_view what,
                                    std::string_view log, std::string_view hint = kBugHint) {
  return fail(Stage::kCompile, ErrorCode::kCompileFailed,
              fmt::format("kernel {}: {}", source.entry, what), std::string(hint),
              fmt::format("NVRTC {}.{}, options {}\n{}\n{}.cu:\n{}", api.major, api.minor,
                          fmt::join(options, " "), log, source.entry, numbered_lines(source.text)));
}

// Returns what to do about a loss: a kernel that a description can do without gets the advice to
// split it there.
std::string hint_of(const KernelSource& source, const Complaint& complaint) {
  const std::string_view field = field_that_fuses(source.entry);
  if (field.empty()) return complaint.hint;
  return fmt::format("\"{}\": false in the layer's description takes it apart", field);
}

// Returns an error that says nothing about the source: the next try may succeed.
tl::unexpected<Error> fault(const NvrtcApi& api, const KernelSource& source, NvrtcResult result,
                            std::string_view log) {
  const std::string message =
      fmt::format("kernel {}: NVRTC failed: {}", source.entry, api.get_error_string(result));
  if (result == kNvrtcOutOfMemory)
    return fail(Stage::kCompile, ErrorCode::kOutOfMemory, message,
                "let fewer kernels be compiled at a time: MOEJIT_COMPILE_JOBS", std::string(log));
  if (result == kNvrtcBuiltinOperationFailure)
    return fail(Stage::kCompile, ErrorCode::kCompilerMissing, message,
                fmt::format("libnvrtc-builtins.so.{}.{} has to be in the folder of {}", api.major,
                            api.minor, api.path),
                std::string(log));
  return fail(Stage::kCompile, ErrorCode::kCompilerFault, message, "try again", std::string(log));
}

// Returns whether a kernel has accumulators that must stay in registers.
bool forbids_spills(const KernelSource& source, const std::vector<IncludedFile>& headers) {
  return holds_wgmma(source.text) || std::ranges::any_of(headers, [](const IncludedFile& header) {
           return header.include_name == "moejit_device/ptx/wgmma.cuh";
         });
}

// Checks that NVRTC is new enough to know the target's architecture.
Result<void> check_version(const NvrtcApi& api, const Target& target) {
  const NvrtcVersion oldest = find_architecture(target)->oldest_nvrtc;
  if (api.is_at_least(oldest.major, oldest.minor)) return {};
  return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
              fmt::format("NVRTC {}.{} knows no {}, wanted {}.{} or newer", api.major, api.minor,
                          nvrtc_arch(target), oldest.major, oldest.minor),
              fmt::format("it is {}; MOEJIT_NVRTC names another one", api.path));
}

// Returns whether NVRTC reports phases. Older versions are not known to have the option.
bool tells_phases(const NvrtcApi& api) { return api.is_at_least(12, 6); }

// Returns the CPU seconds of this thread, in which NVRTC works.
double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct TimedResult {
  NvrtcResult result = 0;
  CompileTime time;
};

TimedResult compile_and_time(const NvrtcApi& api, Program& program,
                             std::vector<std::string> options, const std::stop_token& stop) {
  const PhaseReport report = tells_phases(api) ? PhaseReport::create() : PhaseReport();
  // This option is no part of the kernel's key, since it does not change the bytes.
  if (std::string option = report.option(); !option.empty()) options.push_back(std::move(option));
  const double cpu_start = thread_cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  const NvrtcResult result = program.compile(options, stop);
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start;
  const double cpu = thread_cpu_seconds() - cpu_start;
  return {result, {.total = total.count(), .cpu = cpu, .phases = report.phases()}};
}

}  // namespace

Result<CompiledKernel> compile_with_nvrtc_and_time(const KernelSource& source,
                                                   const std::stop_token& stop) {
  MOEJIT_TRY_ASSIGN(const NvrtcApi* api, nvrtc());
  MOEJIT_TRY(check_version(*api, source.target));
  MOEJIT_TRY_ASSIGN(const std::vector<IncludedFile> headers,
                    templates::include_closure(source.text, header_overlays(source.target)));
  const ForkGate gate;
  MOEJIT_TRY_ASSIGN(Program program, create_program(*api, source, headers));
  const std::vector<std::string> options = compile_options(source.target, api->major, api->minor);
  const auto [result, time] = compile_and_time(*api, program, options, stop);
  const std::string log = program.log();
  if (result != 0 && stop.stop_requested())
    return fail(Stage::kCompile, ErrorCode::kInterrupted,
                fmt::format("compiling kernel {} was given up", source.entry));
  if (result == kNvrtcCompilation)
    return compile_error(*api, source, options,
                         fmt::format("NVRTC refused it: {}", api->get_error_string(result)), log);
  if (result != 0) return fault(*api, source, result, log);
  KernelBinary binary{
      .entry = source.entry, .target = source.target, .bytes = program.cubin(), .usage = {}};
  MOEJIT_TRY_ASSIGN(const std::vector<std::string> entries, cubin_entries(binary.bytes));
  if (entries != std::vector{source.entry}) {
    return compile_error(
        *api, source, options,
        fmt::format("got the entries [{}], wanted this one alone", fmt::join(entries, ", ")), log);
  }
  MOEJIT_TRY_ASSIGN(ResourceUsage usage, cubin_resource_usage(binary.bytes, source.entry));
  add_spills_from_log(log, usage);
  binary.usage = usage;
  CompiledKernel compiled{std::move(binary), time};
  if (const auto complaint = complaint_of(log, usage, forbids_spills(source, headers)))
    compiled.loss =
        compile_error(*api, source, options, complaint->what, log, hint_of(source, *complaint))
            .value();
  return compiled;
}

namespace {

constexpr std::string_view kNvrtcField = "compiler=nvrtc ";
constexpr std::string_view kBuildId = "compiler_build_id=";
constexpr std::string_view kBuiltinsBuildId = "builtins_build_id=";

Result<std::vector<std::string>> identity_with(const KernelSource& source,
                                               const NvrtcRelease& release) {
  MOEJIT_TRY_ASSIGN(const std::vector<IncludedFile> headers,
                    templates::include_closure(source.text, header_overlays(source.target)));
  std::vector<std::string> fields = {
      fmt::format("{}{}.{}", kNvrtcField, release.major, release.minor),
      fmt::format("{}{}", kBuildId, release.build_id),
      fmt::format("{}{}", kBuiltinsBuildId, release.builtins_build_id),
  };
  for (const std::string& option : compile_options(source.target, release.major, release.minor)) {
    fields.push_back(fmt::format("option={}", option));
  }
  for (const IncludedFile& header : headers) {
    fields.push_back(fmt::format("header:{}={}", header.include_name, header.file->sha256));
  }
  return fields;
}

// Parses for example "13.0".
std::optional<NvrtcRelease> release_of(std::string_view version) {
  NvrtcRelease release;
  const char* const end = version.data() + version.size();
  const auto [dot, bad_major] = std::from_chars(version.data(), end, release.major);
  if (bad_major != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  const auto [last, bad_minor] = std::from_chars(dot + 1, end, release.minor);
  return bad_minor == std::errc{} && last == end ? std::optional(release) : std::nullopt;
}

}  // namespace

bool is_nvrtc_field(std::string_view field) {
  return field.starts_with(kNvrtcField) || field.starts_with(kBuildId) ||
         field.starts_with(kBuiltinsBuildId);
}

Result<std::vector<std::string>> nvrtc_identity(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const NvrtcRelease release, nvrtc_release());
  return identity_with(source, release);
}

Result<std::optional<std::vector<std::string>>> nvrtc_identity(
    const KernelSource& source, std::span<const std::string> compiler) {
  if (compiler.size() != 3 || !compiler[0].starts_with(kNvrtcField) ||
      !compiler[1].starts_with(kBuildId) || !compiler[2].starts_with(kBuiltinsBuildId))
    return std::nullopt;
  auto release = release_of(std::string_view(compiler[0]).substr(kNvrtcField.size()));
  if (!release) return std::nullopt;
  release->build_id = compiler[1].substr(kBuildId.size());
  release->builtins_build_id = compiler[2].substr(kBuiltinsBuildId.size());
  return identity_with(source, *release);
}

}  // namespace moejit::compiler
