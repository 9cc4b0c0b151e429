// SPDX-License-Identifier: Apache-2.0
// Reads and writes records as JSON.
#include "compiler/support/file.h"
#include "compiler/support/json_text.h"
#include "compiler/support/json_view.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <span>
#include <utility>

namespace moejit::compiler {
namespace {

// The fields of a record's parts, one list each for reading and writing. They are written in this
// order.
constexpr std::string_view kTuningFormat = "moejit-tuning-1";

template <typename Record, typename Value>
struct RecordField {
  std::string_view key;
  Value Record::*value;
};

using GpuNumber = RecordField<GpuIdentity, int64_t>;
constexpr std::array kGpuNumbers = {
    GpuNumber{"sm_count", &GpuIdentity::sm_count},
    GpuNumber{"l2_bytes", &GpuIdentity::l2_bytes},
    GpuNumber{"memory_bus_bits", &GpuIdentity::memory_bus_bits},
    GpuNumber{"memory_megahertz", &GpuIdentity::memory_megahertz},
    GpuNumber{"most_megahertz", &GpuIdentity::most_megahertz},
    GpuNumber{"power_limit_watts", &GpuIdentity::power_limit_watts},
};

using EntryNumber = RecordField<TuningEntry, double>;
constexpr std::array kEntryNumbers = {
    EntryNumber{"microseconds", &TuningEntry::microseconds},
    EntryNumber{"default_microseconds", &TuningEntry::default_microseconds},
    EntryNumber{"ratio", &TuningEntry::ratio},
    EntryNumber{"ratio_low", &TuningEntry::ratio_low},
    EntryNumber{"ratio_high", &TuningEntry::ratio_high},
};

using EntryText = RecordField<TuningEntry, std::string>;
constexpr std::array kEntryTexts = {
    EntryText{"objective", &TuningEntry::objective},
    EntryText{"text_digest", &TuningEntry::text_digest},
    EntryText{"session", &TuningEntry::session},
    EntryText{"date", &TuningEntry::date},
    EntryText{"version", &TuningEntry::version},
};

// Keys of the other fields. Records of earlier versions have steps.
constexpr std::string_view kFormatKey = "format", kGpuKey = "gpu", kEntriesKey = "entries",
                           kNameKey = "name", kArchKey = "arch", kProblemKey = "problem",
                           kChoicesKey = "choices", kRoundsKey = "rounds", kStepsKey = "steps";

constexpr std::size_t kMostValues = 1U << 17;
constexpr int64_t kMostOfNumber = int64_t{1} << 40;
constexpr double kMostOfMeasurement = 1e12;

bool is_known(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::count(keys, key) > 0;
}

template <typename Fields>
bool is_field(std::string_view key, const Fields& fields) {
  return std::ranges::any_of(fields, [&](const auto& field) { return field.key == key; });
}

Result<JsonDocument> parse(std::string_view json, std::string_view source_name) {
  return parse_json(
      json, {.source_name = source_name, .max_bytes = kMaxTuningBytes, .max_values = kMostValues});
}

Result<double> read_positive(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const double number, view.read_number());
  if (number > 0.0 && number <= kMostOfMeasurement) return number;
  return view.fail(
      ErrorCode::kInvalidValue,
      fmt::format("got {}, wanted more than 0 and at most {:g}", view.got(), kMostOfMeasurement));
}

Result<GpuIdentity> read_gpu(const JsonView& view) {
  GpuIdentity gpu;
  MOEJIT_TRY(view.check_object());
  MOEJIT_TRY_ASSIGN(gpu.name, view.read_string_at(kNameKey));
  MOEJIT_TRY_ASSIGN(gpu.arch, view.read_string_at(kArchKey));
  for (const GpuNumber& field : kGpuNumbers)
    if (const auto number = view.find(field.key)) {
      MOEJIT_TRY_ASSIGN(gpu.*field.value, number->read_int({.highest = kMostOfNumber}));
    }
  return gpu;
}

// Returns the members of an object that `is_known` does not know.
template <typename IsKnown>
std::vector<JsonMember> other_members(const JsonView& view, const IsKnown& is_known_key) {
  std::vector<JsonMember> others;
  for (const JsonMember& member : view.value().members)
    if (!is_known_key(member.key)) others.push_back(member);
  return others;
}

Result<TuningEntry> read_entry(const JsonView& view) {
  TuningEntry entry;
  MOEJIT_TRY(view.check_object());
  MOEJIT_TRY_ASSIGN(entry.problem, view.read_string_at(kProblemKey));
  MOEJIT_TRY_ASSIGN(const JsonView choices, view.at(kChoicesKey));
  MOEJIT_TRY_ASSIGN(entry.choices, read_choices(choices));
  MOEJIT_TRY_ASSIGN(const JsonView rounds, view.at(kRoundsKey));
  MOEJIT_TRY_ASSIGN(entry.rounds, rounds.read_int({.lowest = 1, .highest = kMostOfNumber}));
  for (const EntryNumber& field : kEntryNumbers) {
    MOEJIT_TRY_ASSIGN(const JsonView number, view.at(field.key));
    MOEJIT_TRY_ASSIGN(entry.*field.value, read_positive(number));
  }
  for (const EntryText& field : kEntryTexts)
    if (const auto text = view.find(field.key)) {
      MOEJIT_TRY_ASSIGN(entry.*field.value, text->read_string());
    }
  entry.others = other_members(view, [](std::string_view key) {
    return is_known(key, std::array{kProblemKey, kChoicesKey, kRoundsKey}) ||
           is_field(key, kEntryNumbers) || is_field(key, kEntryTexts);
  });
  return entry;
}

Result<std::vector<TuningEntry>> read_entries(const JsonView& view) {
  std::vector<TuningEntry> entries;
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(TuningEntry entry, read_entry(element));
    const bool is_there = std::ranges::count(entries, entry.problem, &TuningEntry::problem) > 0;
    if (is_there)
      return element.fail(ErrorCode::kInvalidValue, "an entry before has the same problem",
                          "`moejit tuning merge` joins records and keeps one entry of each");
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<void> check_format(const JsonView& root) {
  MOEJIT_TRY_ASSIGN(const JsonView format, root.at(kFormatKey));
  MOEJIT_TRY_ASSIGN(const std::string name, format.read_string());
  if (name == kTuningFormat) return {};
  return format.fail(ErrorCode::kUnsupported,
                     fmt::format("got {}, wanted \"{}\"", format.got(), kTuningFormat),
                     "it is no record of moejit, or one of another version");
}

Json to_json_object(const GpuIdentity& gpu) {
  Json json = {{kNameKey, gpu.name}, {kArchKey, gpu.arch}};
  for (const GpuNumber& field : kGpuNumbers) json[field.key] = gpu.*field.value;
  return json;
}

void add_others(Json& json, const std::vector<JsonMember>& others) {
  for (const JsonMember& member : others) json[member.key] = Json(member.value);
}

Json to_json_object(const TuningEntry& entry) {
  Json json = {{kProblemKey, entry.problem},
               {kChoicesKey, to_json(entry.choices)},
               {kRoundsKey, entry.rounds}};
  for (const EntryNumber& field : kEntryNumbers) json[field.key] = json_number(entry.*field.value);
  for (const EntryText& field : kEntryTexts) json[field.key] = entry.*field.value;
  add_others(json, entry.others);
  return json;
}

}  // namespace

Result<GpuIdentity> parse_gpu_identity(std::string_view json, std::string_view source_name) {
  MOEJIT_TRY_ASSIGN(const JsonDocument document, parse(json, source_name));
  return read_gpu(JsonView(document));
}

Result<TuningRecord> parse_tuning(std::string_view json, std::string_view source_name) {
  MOEJIT_TRY_ASSIGN(const JsonDocument document, parse(json, source_name));
  const JsonView root(document);
  MOEJIT_TRY(check_format(root));
  TuningRecord record;
  MOEJIT_TRY_ASSIGN(const JsonView gpu, root.at(kGpuKey));
  MOEJIT_TRY_ASSIGN(record.gpu, read_gpu(gpu));
  MOEJIT_TRY_ASSIGN(const JsonView entries, root.at(kEntriesKey));
  MOEJIT_TRY_ASSIGN(record.entries, read_entries(entries));
  record.others = other_members(root, [](std::string_view key) {
    return is_known(key, std::array{kFormatKey, kGpuKey, kEntriesKey, kStepsKey});
  });
  return record;
}

Result<TuningRecord> read_tuning(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text,
                    read_text_file(path, static_cast<int64_t>(kMaxTuningBytes)));
  return parse_tuning(text, path);
}

std::string gpu_to_json(const GpuIdentity& gpu) { return to_json_object(gpu).dump(); }

std::string to_json(const TuningEntry& entry) { return to_json_object(entry).dump(); }

std::string to_json(const TuningRecord& record) {
  std::vector<const TuningEntry*> sorted;
  for (const TuningEntry& entry : record.entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const TuningEntry* entry) { return entry->problem; });
  Json entries = Json::array();
  for (const TuningEntry* entry : sorted) entries.push_back(to_json_object(*entry));
  Json json = {{kFormatKey, kTuningFormat}, {kGpuKey, to_json_object(record.gpu)}};
  json[kEntriesKey] = std::move(entries);
  add_others(json, record.others);
  return json.dump(2) + "\n";
}

}  // namespace moejit::compiler
