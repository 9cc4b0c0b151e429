// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_text.h"
#include "compiler/tuning.h"
#include "compiler/tuning/record_fields.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

Json gpu_json(const GpuIdentity& gpu) {
  Json json = {{kNameKey, gpu.name}, {kArchKey, gpu.arch}};
  for (const GpuNumber& field : kGpuNumbers) json[field.key] = gpu.*field.value;
  return json;
}

void add_others(Json& json, const std::vector<JsonMember>& others) {
  for (const JsonMember& member : others) json[member.key] = Json(member.value);
}

Json entry_json(const TuningEntry& entry) {
  Json json = {{kProblemKey, entry.problem},
               {kChoicesKey, to_json(entry.choices)},
               {kRoundsKey, entry.rounds}};
  for (const EntryNumber& field : kEntryNumbers) json[field.key] = json_number(entry.*field.value);
  for (const EntryText& field : kEntryTexts) json[field.key] = entry.*field.value;
  add_others(json, entry.others);
  return json;
}

}  // namespace

std::string gpu_to_json(const GpuIdentity& gpu) { return gpu_json(gpu).dump(); }

std::string to_json(const TuningEntry& entry) { return entry_json(entry).dump(); }

std::string to_json(const TuningRecord& record) {
  std::vector<const TuningEntry*> sorted;
  for (const TuningEntry& entry : record.entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const TuningEntry* entry) { return entry->problem; });
  Json entries = Json::array();
  for (const TuningEntry* entry : sorted) entries.push_back(entry_json(*entry));
  Json json = {{kFormatKey, kTuningFormat}, {kGpuKey, gpu_json(record.gpu)}};
  json[kEntriesKey] = std::move(entries);
  add_others(json, record.others);
  return json.dump(2) + "\n";
}

}  // namespace moejit::compiler
