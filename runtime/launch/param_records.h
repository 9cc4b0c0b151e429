// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/plan.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace moejit::runtime {

// A pointer of a parameter record, by the name that KernelArgument::role gives it.
struct RecordPointer {
  std::string_view role;
  std::size_t offset = 0;
  bool is_written = false;
};

// A tensor map likewise, by the name that TensorMapPlan::role gives it.
struct RecordMap {
  std::string_view role;
  std::size_t offset = 0;
  bool is_written = false;
};

// A number of a parameter record: T, P or C of the call, or a value that the plan fixes.
struct RecordNumber {
  std::size_t offset = 0;
  std::optional<compiler::CallDim> dim;
  int64_t value = 0;  // where it is no dim
};

inline constexpr std::size_t kMostRecordNumbers = 3;

// What the host has to know of a kernel's parameter record (templates/moejit_device/params).
struct ParamRecord {
  std::size_t bytes = 0;
  std::span<const RecordPointer> pointers;
  std::span<const RecordMap> maps;
  std::array<RecordNumber, kMostRecordNumbers> numbers{};
  std::size_t number_count = 0;
};

ParamRecord param_record(const compiler::KernelSpec& spec, const compiler::Layer& layer);

}  // namespace moejit::runtime
