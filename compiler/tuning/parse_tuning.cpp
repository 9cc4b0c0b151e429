// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"
#include "compiler/support/json_view.h"
#include "compiler/tuning.h"
#include "compiler/tuning/record_fields.h"

#include <algorithm>
#include <fmt/core.h>
#include <span>

namespace moejit::compiler {
namespace {

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

Result<std::string> read_text(const JsonView& view, std::string_view key) {
  MOEJIT_TRY_ASSIGN(const JsonView text, view.at(key));
  return text.read_string();
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
  MOEJIT_TRY_ASSIGN(gpu.name, read_text(view, kNameKey));
  MOEJIT_TRY_ASSIGN(gpu.arch, read_text(view, kArchKey));
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
  MOEJIT_TRY_ASSIGN(entry.problem, read_text(view, kProblemKey));
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
    return is_known(key, std::array{kFormatKey, kGpuKey, kEntriesKey});
  });
  return record;
}

Result<TuningRecord> read_tuning(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text,
                    read_text_file(path, static_cast<int64_t>(kMaxTuningBytes)));
  return parse_tuning(text, path);
}

}  // namespace moejit::compiler
