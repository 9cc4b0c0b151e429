// SPDX-License-Identifier: Apache-2.0
#include "compiler/tuning.h"

#include "compiler/support/env.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

const TuningEntry* find_entry(const TuningRecord& record, std::string_view problem) {
  const auto found = std::ranges::find(record.entries, problem, &TuningEntry::problem);
  return found == record.entries.end() ? nullptr : &*found;
}

tl::unexpected<Error> two_gpus(const GpuIdentity& one, const GpuIdentity& other) {
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("the tuning records are of two GPUs, the {} and the {}, and nothing says "
                          "for which the plan is",
                          to_string(one), to_string(other)),
              "name the records of one GPU");
}

}  // namespace

Result<Tuning> Tuning::make(std::vector<TuningRecord> records,
                            const std::optional<GpuIdentity>& gpu) {
  Tuning tuning;
  if (gpu) tuning.gpu_ = *gpu;
  if (!gpu && !records.empty()) tuning.gpu_ = records.front().gpu;
  for (TuningRecord& record : records) {
    if (!is_same_gpu(record.gpu, tuning.gpu_)) {
      if (!gpu) return two_gpus(tuning.gpu_, record.gpu);
      if (is_same_family(record.gpu, tuning.gpu_)) tuning.hints_.push_back(std::move(record));
      continue;
    }
    if (tuning.exact_.empty()) {
      tuning.exact_.push_back(std::move(record));
      continue;
    }
    MOEJIT_TRY_ASSIGN(tuning.exact_.front(), merge(tuning.exact_.front(), record));
  }
  return tuning;
}

std::optional<Tuning::Found> Tuning::find(std::string_view problem) const {
  for (const TuningRecord& record : exact_)
    if (const TuningEntry* const entry = find_entry(record, problem))
      return Found{.entry = entry, .measured_on = &record.gpu};
  for (const TuningRecord& record : hints_)
    if (const TuningEntry* const entry = find_entry(record, problem))
      return Found{.entry = entry, .measured_on = &record.gpu, .is_hint = true};
  return std::nullopt;
}

Result<std::unique_ptr<const Tuning>> read_tunings(const std::optional<std::string>& named,
                                                   const std::optional<GpuIdentity>& gpu) {
  const std::string list = named ? *named : environment(Variable::kTuning).value_or("");
  std::string_view paths = list;
  std::vector<TuningRecord> records;
  while (!paths.empty()) {
    const std::size_t end = std::min(paths.find(':'), paths.size());
    if (end > 0) {
      MOEJIT_TRY_ASSIGN(TuningRecord record, read_tuning(std::string(paths.substr(0, end))));
      records.push_back(std::move(record));
    }
    paths.remove_prefix(std::min(end + 1, paths.size()));
  }
  if (records.empty()) return std::unique_ptr<const Tuning>();
  MOEJIT_TRY_ASSIGN(Tuning tuning, Tuning::make(std::move(records), gpu));
  return std::make_unique<const Tuning>(std::move(tuning));
}

}  // namespace moejit::compiler
