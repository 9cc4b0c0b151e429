// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/tune_options.h"

#include "cli/commands/gemm_cases.h"
#include "cli/commands/layer_file.h"
#include "runtime/trial/inputs.h"

#include <charconv>
#include <fmt/core.h>
#include <utility>

namespace moejit::cli {

Result<tune::TuneSubjects> read_subjects(const TuneOptions& options) {
  const uint64_t seed = options.measured.seed;
  tune::TuneSubjects subjects{.layers = {}, .gemms = {}, .seed = seed};
  for (const std::string& path : options.layers) {
    MOEJIT_TRY_ASSIGN(compiler::Layer layer, read_layer(path));
    choose_passes(layer, options.pass);
    const int64_t tokens = options.tokens.value_or(layer.max_tokens);
    MOEJIT_TRY(trial::check_tokens(tokens, 1, layer.max_tokens, "max_tokens of " + path));
    subjects.layers.push_back({std::move(layer), tokens, seed});
  }
  if (options.gemms.empty()) return subjects;
  MOEJIT_TRY_ASSIGN(subjects.gemms, read_gemm_cases(options.gemms));
  return subjects;
}

Result<tune::MeasureOptions> measure_options(const TuneOptions& options,
                                             std::string_view without_gpu) {
  tune::MeasureOptions measured = options.measured;
  MOEJIT_TRY_ASSIGN(measured.candidate_seconds,
                    parse_duration("--candidate-limit", options.candidate_limit));
  measured.without_gpu = without_gpu;
  return measured;
}

Result<double> parse_duration(std::string_view option, const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double seconds = unit.empty() || unit == "s" ? 1.0
                         : unit == "m"               ? 60.0
                         : unit == "h"               ? 3600.0
                                                     : 0.0;
  if (error == std::errc() && seconds > 0.0 && number > 0.0 && number * seconds <= 1e7)
    return number * seconds;
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("{} is \"{}\", wanted a time such as 90s, 20m or 2h", option, text));
}

}  // namespace moejit::cli
