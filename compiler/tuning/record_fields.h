// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"

#include <array>
#include <string_view>

namespace moejit::compiler {

// The fields of a record's parts, one list each for reading and writing. They are written in this
// order.

inline constexpr std::string_view kTuningFormat = "moejit-tuning-1";

template <typename Record, typename Value>
struct RecordField {
  std::string_view key;
  Value Record::*value;
};

using GpuNumber = RecordField<GpuIdentity, int64_t>;
inline constexpr std::array kGpuNumbers = {
    GpuNumber{"sm_count", &GpuIdentity::sm_count},
    GpuNumber{"l2_bytes", &GpuIdentity::l2_bytes},
    GpuNumber{"memory_bus_bits", &GpuIdentity::memory_bus_bits},
    GpuNumber{"memory_megahertz", &GpuIdentity::memory_megahertz},
    GpuNumber{"most_megahertz", &GpuIdentity::most_megahertz},
    GpuNumber{"power_limit_watts", &GpuIdentity::power_limit_watts},
};

// What entries and steps measured alike.
template <typename Record>
inline constexpr std::array kNumbersOf = {
    RecordField<Record, double>{"microseconds", &Record::microseconds},
    RecordField<Record, double>{"default_microseconds", &Record::default_microseconds},
    RecordField<Record, double>{"ratio", &Record::ratio},
    RecordField<Record, double>{"ratio_low", &Record::ratio_low},
    RecordField<Record, double>{"ratio_high", &Record::ratio_high},
};

using EntryText = RecordField<TuningEntry, std::string>;
inline constexpr std::array kEntryTexts = {
    EntryText{"objective", &TuningEntry::objective},
    EntryText{"text_digest", &TuningEntry::text_digest},
    EntryText{"session", &TuningEntry::session},
    EntryText{"date", &TuningEntry::date},
    EntryText{"version", &TuningEntry::version},
};

using StepText = RecordField<TuningStep, std::string>;
inline constexpr std::array kStepTexts = {
    StepText{"session", &TuningStep::session},
    StepText{"date", &TuningStep::date},
    StepText{"version", &TuningStep::version},
};

// Keys of the other fields.
inline constexpr std::string_view kFormatKey = "format", kGpuKey = "gpu", kEntriesKey = "entries",
                                  kNameKey = "name", kArchKey = "arch", kProblemKey = "problem",
                                  kChoicesKey = "choices", kRoundsKey = "rounds",
                                  kStepsKey = "steps", kStepKey = "step";

}  // namespace moejit::compiler
