// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"
#include "compiler/support/json_view.h"
#include "compiler/tuning.h"
#include "compiler/tuning/record_fields.h"

#include <algorithm>
#include <fmt/core.h>
#include <span>
#include <utility>

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

// Returns the record with the figures that entries and steps have alike.
template <typename Record>
Result<Record> read_figures(const JsonView& view, Record record) {
  MOEJIT_TRY_ASSIGN(const JsonView rounds, view.at(kRoundsKey));
  MOEJIT_TRY_ASSIGN(record.rounds, rounds.read_int({.lowest = 1, .highest = kMostOfNumber}));
  for (const auto& field : kNumbersOf<Record>) {
    MOEJIT_TRY_ASSIGN(const JsonView number, view.at(field.key));
    MOEJIT_TRY_ASSIGN(record.*field.value, read_positive(number));
  }
  return record;
}

// Returns the record with those of the texts that are there.
template <typename Record, typename Fields>
Result<Record> read_texts(const JsonView& view, const Fields& fields, Record record) {
  for (const auto& field : fields)
    if (const auto text = view.find(field.key)) {
      MOEJIT_TRY_ASSIGN(record.*field.value, text->read_string());
    }
  return record;
}

Result<TuningEntry> read_entry(const JsonView& view) {
  TuningEntry entry;
  MOEJIT_TRY(view.check_object());
  MOEJIT_TRY_ASSIGN(entry.problem, view.read_string_at(kProblemKey));
  MOEJIT_TRY_ASSIGN(const JsonView choices, view.at(kChoicesKey));
  MOEJIT_TRY_ASSIGN(entry.choices, read_choices(choices));
  MOEJIT_TRY_ASSIGN(entry, read_figures(view, std::move(entry)));
  MOEJIT_TRY_ASSIGN(entry, read_texts(view, kEntryTexts, std::move(entry)));
  entry.others = other_members(view, [](std::string_view key) {
    return is_known(key, std::array{kProblemKey, kChoicesKey, kRoundsKey}) ||
           is_field(key, kNumbersOf<TuningEntry>) || is_field(key, kEntryTexts);
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

Result<TuningStep> read_step(const JsonView& view) {
  TuningStep step;
  MOEJIT_TRY(view.check_object());
  MOEJIT_TRY_ASSIGN(step.step, view.read_string_at(kStepKey));
  MOEJIT_TRY_ASSIGN(step, read_figures(view, std::move(step)));
  MOEJIT_TRY_ASSIGN(step, read_texts(view, kStepTexts, std::move(step)));
  step.others = other_members(view, [](std::string_view key) {
    return is_known(key, std::array{kStepKey, kRoundsKey}) ||
           is_field(key, kNumbersOf<TuningStep>) || is_field(key, kStepTexts);
  });
  return step;
}

Result<std::vector<TuningStep>> read_steps(const JsonView& view) {
  std::vector<TuningStep> steps;
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(TuningStep step, read_step(element));
    if (std::ranges::count(steps, step.step, &TuningStep::step) > 0)
      return element.fail(ErrorCode::kInvalidValue, "a step before has the same name",
                          "`moejit tuning merge` joins records and keeps one step of each");
    steps.push_back(std::move(step));
  }
  return steps;
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
  if (const auto steps = root.find(kStepsKey)) {
    MOEJIT_TRY_ASSIGN(record.steps, read_steps(*steps));
  }
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

}  // namespace moejit::compiler
