// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/compile_reports.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace moejit::compiler {
namespace {

struct Loss {
  std::string_view phrase;  // of ptxas, in one line of its report
  std::string_view hint;
};

// ptxas calls these "info" and goes on:
//   ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are
//   serialized due to non wgmma instructions reading accumulator registers ... in the function 'k'
// The codes differ with the cause and the release, the phrases do not.
constexpr std::array kLosses = {
    Loss{"instructions are serialized",
         "let nothing read or write the accumulators between wgmma_fence() and wgmma_wait(), close "
         "each group on every path through a loop, and leave registers free for them"},
    Loss{"'setmaxnreg' ignored",
         "give the kernel launch bounds from which ptxas knows the registers at its entry, and ask "
         "for multiples of 8 that their sum has"},
    Loss{"Potential Performance Loss", "the message of ptxas names the cause"},
};

// Returns the line of `text` around `at`, without ptxas's "ptxas info    : ".
std::string_view message_at(std::string_view text, std::size_t at) {
  const std::size_t before = text.rfind('\n', at);
  const std::size_t first = before == std::string_view::npos ? 0 : before + 1;
  std::string_view line = text.substr(first, text.find('\n', at) - first);
  constexpr std::string_view kSeparator = " : ";
  if (const std::size_t prefix = line.find(kSeparator); prefix != std::string_view::npos)
    line.remove_prefix(prefix + kSeparator.size());
  return line;
}

}  // namespace

std::optional<Complaint> complaint_of(std::string_view log, const ResourceUsage& usage,
                                      bool forbids_spills) {
  for (const Loss& loss : kLosses) {
    const std::size_t at = log.find(loss.phrase);
    if (at == std::string_view::npos) continue;
    return Complaint{fmt::format("ptxas would make it slow: {}", message_at(log, at)),
                     std::string(loss.hint)};
  }
  if (!forbids_spills || (usage.spill_store_bytes == 0 && usage.spill_load_bytes == 0))
    return std::nullopt;
  return Complaint{
      fmt::format("its {} registers are too few: {} bytes spill stores, {} bytes spill loads, "
                  "wanted none in a kernel that multiplies",
                  usage.registers, usage.spill_store_bytes, usage.spill_load_bytes),
      "fewer accumulators a thread (a smaller tile, more warpgroups), or fewer CTAs per SM in the "
      "launch bounds"};
}

bool holds_wgmma(std::string_view text) {
  return text.find("wgmma.mma_async") != std::string_view::npos;
}

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
