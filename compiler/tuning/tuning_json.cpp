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

template <typename Record>
void add_numbers(Json& json, const Record& record) {
  for (const auto& field : kNumbersOf<Record>) json[field.key] = json_number(record.*field.value);
}

Json entry_json(const TuningEntry& entry) {
  Json json = {{kProblemKey, entry.problem},
               {kChoicesKey, to_json(entry.choices)},
               {kRoundsKey, entry.rounds}};
  add_numbers(json, entry);
  for (const EntryText& field : kEntryTexts) json[field.key] = entry.*field.value;
  add_others(json, entry.others);
  return json;
}

Json step_json(const TuningStep& step) {
  Json json = {{kStepKey, step.step}, {kRoundsKey, step.rounds}};
  add_numbers(json, step);
  for (const StepText& field : kStepTexts) json[field.key] = step.*field.value;
  add_others(json, step.others);
  return json;
}

// Returns an array of the records, sorted by their names.
template <typename Record, typename ToJson>
Json sorted_json(const std::vector<Record>& records, std::string Record::*name,
                 const ToJson& record_json) {
  std::vector<const Record*> sorted;
  for (const Record& record : records) sorted.push_back(&record);
  std::ranges::sort(sorted, {}, [&](const Record* record) { return record->*name; });
  Json json = Json::array();
  for (const Record* record : sorted) json.push_back(record_json(*record));
  return json;
}

}  // namespace

std::string gpu_to_json(const GpuIdentity& gpu) { return gpu_json(gpu).dump(); }

std::string to_json(const TuningEntry& entry) { return entry_json(entry).dump(); }

std::string to_json(const TuningStep& step) { return step_json(step).dump(); }

std::string to_json(const TuningRecord& record) {
  Json json = {{kFormatKey, kTuningFormat}, {kGpuKey, gpu_json(record.gpu)}};
  json[kEntriesKey] = sorted_json(record.entries, &TuningEntry::problem, entry_json);
  if (!record.steps.empty())
    json[kStepsKey] = sorted_json(record.steps, &TuningStep::step, step_json);
  add_others(json, record.others);
  return json.dump(2) + "\n";
}

}  // namespace moejit::compiler
