// SPDX-License-Identifier: Apache-2.0
#include "compiler/tuning.h"

#include "compiler/compiler.h"
#include "compiler/support/digest.h"
#include "compiler/support/env.h"
#include "templates/embedded_templates.h"

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

namespace {

Result<std::string> digest_of(const KernelPlan& kernel, const Target& target) {
  MOEJIT_TRY_ASSIGN(const KernelSource source, emit_kernel(kernel, target));
  return text_digest(source);
}

}  // namespace

Result<std::string> measured_text_digest(const KernelPlan& kernel, const Target& target) {
  KernelPlan unnamed = kernel;
  unnamed.operation = "kernel";
  return digest_of(unnamed, target);
}

bool is_measured_text(const TuningEntry& entry, const KernelPlan& kernel, const Target& target) {
  if (const auto digest = measured_text_digest(kernel, target);
      digest && *digest == entry.text_digest)
    return true;
  const auto of_name = digest_of(kernel, target);
  return of_name && *of_name == entry.text_digest;
}

Result<std::string> text_digest(const KernelSource& source) {
  constexpr std::size_t kDigits = 32;
  MOEJIT_TRY_ASSIGN(const auto headers,
                    templates::include_closure(source.text, header_overlays(source.target)));
  FieldHasher hasher;
  hasher.add("text", source.text);
  for (const auto& header : headers) hasher.add(header.include_name, header.file->sha256);
  return hasher.digest().hex().substr(0, kDigits);
}

namespace {

bool agree(int64_t one, int64_t other) { return one == 0 || other == 0 || one == other; }

// Returns the multiple of 25 W that is nearest.
int64_t rounded_watts(int64_t watts) { return (watts + 12) / 25 * 25; }

}  // namespace

bool is_same_family(const GpuIdentity& one, const GpuIdentity& other) {
  return one.arch == other.arch && agree(one.sm_count, other.sm_count);
}

bool is_same_gpu(const GpuIdentity& one, const GpuIdentity& other) {
  return is_same_family(one, other) && agree(one.l2_bytes, other.l2_bytes) &&
         agree(one.memory_bus_bits, other.memory_bus_bits) &&
         agree(one.memory_megahertz, other.memory_megahertz) &&
         agree(one.most_megahertz, other.most_megahertz) &&
         agree(rounded_watts(one.power_limit_watts), rounded_watts(other.power_limit_watts));
}

std::string to_string(const GpuIdentity& gpu) {
  std::string facts;
  const auto add = [&facts](int64_t value, std::string_view unit) {
    if (value > 0) facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", value, unit);
  };
  add(gpu.sm_count, "SMs");
  add(gpu.l2_bytes >> 20, "MiB of L2");
  add(gpu.power_limit_watts, "W");
  const std::string& name = gpu.name.empty() ? gpu.arch : gpu.name;
  return facts.empty() ? name : fmt::format("{} ({})", name, facts);
}

}  // namespace moejit::compiler
