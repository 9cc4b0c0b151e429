// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_text.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

double width_of(const TuningEntry& entry) { return entry.ratio_high - entry.ratio_low; }

// Returns the entry with more rounds, else with the narrower interval, else the newer one, else the
// one whose JSON comes first.
const TuningEntry& better_entry(const TuningEntry& one, const TuningEntry& other) {
  if (one.rounds != other.rounds) return one.rounds > other.rounds ? one : other;
  if (width_of(one) != width_of(other)) return width_of(one) < width_of(other) ? one : other;
  if (one.date != other.date) return one.date > other.date ? one : other;
  return to_json(one) <= to_json(other) ? one : other;
}

// Adds the entries of `more`, and sorts all by their problems. If two are for one problem, the
// better founded stays.
void join(std::vector<TuningEntry>& entries, const std::vector<TuningEntry>& more) {
  for (const TuningEntry& entry : more) {
    const auto found = std::ranges::find(entries, entry.problem, &TuningEntry::problem);
    if (found == entries.end())
      entries.push_back(entry);
    else
      *found = TuningEntry(better_entry(*found, entry));
  }
  std::ranges::sort(entries, {}, &TuningEntry::problem);
}

// Returns the facts that either of them knows, with the larger number where they differ within one
// GPU's bounds.
GpuIdentity join(const GpuIdentity& one, const GpuIdentity& other) {
  GpuIdentity joined = one;
  joined.name = one.name.empty()     ? other.name
                : other.name.empty() ? one.name
                                     : std::min(one.name, other.name);
  joined.sm_count = std::max(one.sm_count, other.sm_count);
  joined.l2_bytes = std::max(one.l2_bytes, other.l2_bytes);
  joined.memory_bus_bits = std::max(one.memory_bus_bits, other.memory_bus_bits);
  joined.memory_megahertz = std::max(one.memory_megahertz, other.memory_megahertz);
  joined.most_megahertz = std::max(one.most_megahertz, other.most_megahertz);
  joined.power_limit_watts = std::max(one.power_limit_watts, other.power_limit_watts);
  return joined;
}

// Adds the members of `more`. If two have one key, the one whose text comes first stays.
void join(std::vector<JsonMember>& members, const std::vector<JsonMember>& more) {
  for (const JsonMember& member : more) {
    const auto found = std::ranges::find(members, member.key, &JsonMember::key);
    if (found == members.end())
      members.push_back(member);
    else if (Json(member.value).dump() < Json(found->value).dump())
      *found = member;
  }
  std::ranges::sort(members, {}, &JsonMember::key);
}

}  // namespace

Result<TuningRecord> merge(const TuningRecord& one, const TuningRecord& other) {
  if (!is_same_gpu(one.gpu, other.gpu))
    return fail(Stage::kPlan, ErrorCode::kInvalidValue,
                fmt::format("one record is of the {}, the other of the {}", to_string(one.gpu),
                            to_string(other.gpu)),
                "keep a file for each GPU; plans take several files");
  TuningRecord merged = one;
  merged.gpu = join(one.gpu, other.gpu);
  join(merged.entries, other.entries);
  join(merged.others, other.others);
  return merged;
}

}  // namespace moejit::compiler
