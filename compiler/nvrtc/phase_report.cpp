// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/phase_report.h"

#include <charconv>
#include <cstdint>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace moejit::compiler {
namespace {

constexpr std::int64_t kLargestReport = 65536;

std::string path_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// Returns the seconds of a phase, from its line "file, phase, number, unit".
std::optional<double> seconds_of(std::string_view report, std::string_view phase) {
  const std::string before = fmt::format(", {}, ", phase);
  const std::size_t at = report.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  report.remove_prefix(at + before.size());
  int64_t spent_ms = 0;
  const auto [end, error] = std::from_chars(report.data(), report.data() + report.size(), spent_ms);
  if (error != std::errc{}) return std::nullopt;
  report.remove_prefix(static_cast<std::size_t>(end - report.data()));
  if (!report.starts_with(", ms")) return std::nullopt;
  return static_cast<double>(spent_ms) * 1e-3;
}

}  // namespace

PhaseReport PhaseReport::create() {
  PhaseReport report;
  FileDescriptor file(memfd_create("moejit-compile-time", MFD_CLOEXEC));
  // NVRTC opens the file by its path, which needs /proc, and would fail if it could not.
  if (file && access(path_of(file.get()).c_str(), W_OK) == 0) report.file_ = std::move(file);
  return report;
}

std::string PhaseReport::option() const {
  return file_ ? "--time=" + path_of(file_.get()) : std::string();
}

std::optional<CompilePhases> PhaseReport::phases() const {
  std::vector<std::byte> bytes;
  if (!file_ || lseek(file_.get(), 0, SEEK_SET) != 0) return std::nullopt;
  if (read_all(file_.get(), kLargestReport, bytes) != 0) return std::nullopt;
  return phases_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::optional<CompilePhases> phases_of(std::string_view report) {
  const auto front_end = seconds_of(report, "CUDA C++ Frontend");
  const auto optimizer = seconds_of(report, "NVVM Optimizer");
  const auto assembler = seconds_of(report, "PTX Translation");
  if (!front_end || !optimizer || !assembler) return std::nullopt;
  return CompilePhases{*front_end, *optimizer, *assembler};
}

}  // namespace moejit::compiler
