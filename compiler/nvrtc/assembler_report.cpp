// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/assembler_report.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

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
                  "wanted none in a kernel with WGMMA",
                  usage.registers, usage.spill_store_bytes, usage.spill_load_bytes),
      "fewer accumulators a thread (a smaller tile, more warpgroups), or fewer CTAs per SM in the "
      "launch bounds"};
}

bool holds_wgmma(std::string_view text) {
  return text.find("wgmma.mma_async") != std::string_view::npos;
}

}  // namespace moejit::compiler
