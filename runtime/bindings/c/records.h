// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fmt/core.h>
#include <string_view>
#include <type_traits>

// Reads and writes records with a struct_size, which grow at the end from version to version: the
// program and the library may know different ones.
namespace moejit::bindings {

inline constexpr std::size_t kMostRecordBytes = 4096;

// Returns the struct_size of the caller's record of type `type`, of which this version knows
// `known` bytes. A record is as aligned as its struct_size, so the size of every version is a
// multiple of that and never ends within a field.
inline Result<std::size_t> read_struct_size(Stage stage, const void* record, std::size_t known,
                                            std::string_view type) {
  std::size_t size = 0;
  std::memcpy(&size, record, sizeof(size));
  if (size > 0 && size % sizeof(size) == 0 && size <= kMostRecordBytes) return size;
  return fail(stage, ErrorCode::kInvalidValue,
              fmt::format("struct_size of {} is {}, wanted {}", type, size, known),
              fmt::format("set it to sizeof({})", type));
}

// Returns the caller's record as this version knows it, with 0 in fields that the caller's version
// lacks. Error kUnsupported: it uses fields that this version does not know. NULL gives all zeros.
template <typename Record>
Result<Record> read_record(Stage stage, const Record* given, std::string_view type) {
  // Otherwise bytes between fields, which nobody sets, could become fields of a later version.
  static_assert(std::has_unique_object_representations_v<Record>);
  static_assert(alignof(Record) == alignof(std::size_t));
  Record record{};
  if (given == nullptr) return record;
  MOEJIT_TRY_ASSIGN(const std::size_t size, read_struct_size(stage, given, sizeof(Record), type));
  std::memcpy(&record, given, std::min(size, sizeof(Record)));
  const auto* const bytes = reinterpret_cast<const std::byte*>(given);
  for (std::size_t i = sizeof(Record); i < size; ++i)
    if (bytes[i] != std::byte{0})
      return fail(stage, ErrorCode::kUnsupported,
                  fmt::format("{} has {} bytes and uses byte {}, this version of moejit knows {}",
                              type, size, i, sizeof(Record)),
                  "set fields that you do not need to 0, or take a newer libmoejit.so");
  return record;
}

// Writes the fields of `record` that the caller's version has. Fields that this version lacks
// become 0.
template <typename Record>
Result<void> write_record(Stage stage, Record record, Record* wanted, std::string_view type) {
  MOEJIT_TRY_ASSIGN(const std::size_t size, read_struct_size(stage, wanted, sizeof(Record), type));
  record.struct_size = size;
  std::memcpy(wanted, &record, std::min(size, sizeof(Record)));
  if (size > sizeof(Record)) std::memset(wanted + 1, 0, size - sizeof(Record));
  return {};
}

}  // namespace moejit::bindings
