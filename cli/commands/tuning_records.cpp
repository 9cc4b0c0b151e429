// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/tuning_records.h"

#include "cli/terminal/output.h"
#include "runtime/measure/gpu_monitor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

namespace moejit::cli {

Result<std::unique_ptr<const compiler::Tuning>> read_tuning_records(const TuningOptions& options,
                                                                    const runtime::Device* device) {
  std::optional<std::string> paths;
  if (!options.is_used) paths = "";
  if (!options.records.empty()) paths = fmt::format("{}", fmt::join(options.records, ":"));
  return compiler::read_tunings(paths,
                                device == nullptr ? std::nullopt : measure::gpu_identity(*device));
}

std::string tuning_words(const TuningOptions& options) {
  if (!options.is_used) return " --no-tuning";
  if (options.records.empty()) return {};
  return " --tuning " + shell_word(fmt::format("{}", fmt::join(options.records, ":")));
}

}  // namespace moejit::cli
