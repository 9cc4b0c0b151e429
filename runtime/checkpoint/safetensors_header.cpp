// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_document.h"
#include "runtime/checkpoint/safetensors_file.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using runtime::shape_text;

struct FileDType {
  std::string_view name;
  int64_t bits;
};

// Every dtype of the format. A file may have tensors that moejit does not use.
constexpr std::array kFileDTypes = {
    FileDType{"BOOL", 8},    FileDType{"U8", 8},      FileDType{"I8", 8},   FileDType{"F8_E4M3", 8},
    FileDType{"F8_E5M2", 8}, FileDType{"F8_E8M0", 8}, FileDType{"F4", 4},   FileDType{"F6_E2M3", 6},
    FileDType{"F6_E3M2", 6}, FileDType{"I16", 16},    FileDType{"U16", 16}, FileDType{"F16", 16},
    FileDType{"BF16", 16},   FileDType{"I32", 32},    FileDType{"U32", 32}, FileDType{"F32", 32},
    FileDType{"I64", 64},    FileDType{"U64", 64},    FileDType{"F64", 64}, FileDType{"C64", 64},
};

tl::unexpected<Error> invalid(const std::string& path, const std::string& what) {
  return fail(Stage::kFile, ErrorCode::kInvalidFile, fmt::format("{}: {}", path, what),
              "make the file again; it is damaged or not a safetensors file");
}

// Reads the record of one tensor. Errors name the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& path, const JsonMember& member)
      : path_(path), member_(member), name_(quote_for_message(member.key)) {}

  Result<SafetensorsEntry> read(int64_t data_offset, int64_t data_bytes) const {
    SafetensorsEntry entry;
    entry.name = member_.key;
    if (member_.value.kind != JsonKind::kObject) return wrong("is not described by an object");
    MOEJIT_TRY_ASSIGN(const int64_t element_bits, read_dtype(entry));
    MOEJIT_TRY_ASSIGN(entry.shape, read_integers("shape"));
    MOEJIT_TRY_ASSIGN(const std::vector<int64_t> offsets, read_integers("data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      return wrong("has data_offsets that are not [begin, end] with begin <= end");
    if (offsets[1] > data_bytes)
      return wrong(fmt::format("ends at byte {} of the data, but the file holds {}: truncated?",
                               offsets[1], data_bytes));
    entry.offset = data_offset + offsets[0];
    entry.bytes = offsets[1] - offsets[0];
    MOEJIT_TRY(check_size(entry, element_bits));
    return entry;
  }

 private:
  tl::unexpected<Error> wrong(const std::string& what) const {
    return invalid(path_, fmt::format("tensor {} {}", name_, what));
  }

  const JsonValue* find(std::string_view key) const {
    for (const JsonMember& member : member_.value.members)
      if (member.key == key) return &member.value;
    return nullptr;
  }

  Result<int64_t> read_dtype(SafetensorsEntry& entry) const {
    const JsonValue* dtype = find("dtype");
    if (dtype == nullptr || dtype->kind != JsonKind::kString) return wrong("has no dtype");
    for (const FileDType& known : kFileDTypes) {
      if (known.name != dtype->text) continue;
      entry.dtype_name = dtype->text;
      entry.dtype = compiler::dtype_from_string(dtype->text);
      return known.bits;
    }
    return wrong(fmt::format("has the unknown dtype {}", quote_for_message(dtype->text)));
  }

  Result<std::vector<int64_t>> read_integers(std::string_view key) const {
    const JsonValue* array = find(key);
    if (array == nullptr || array->kind != JsonKind::kArray)
      return wrong(fmt::format("has no array {}", key));
    std::vector<int64_t> numbers;
    for (const JsonValue& element : array->elements) {
      if (element.kind != JsonKind::kNumber || !element.integer || *element.integer < 0)
        return wrong(fmt::format("has in {} {}, wanted a whole number from 0 to 2^63 - 1", key,
                                 element.kind == JsonKind::kNumber
                                     ? escape_for_message(element.text)
                                     : "something that is not a number"));
      numbers.push_back(*element.integer);
    }
    return numbers;
  }

  Result<void> check_size(const SafetensorsEntry& entry, int64_t element_bits) const {
    int64_t bits = element_bits;
    // If one dimension is 0, the tensor is empty, whatever the other dimensions are.
    const bool is_empty = std::ranges::find(entry.shape, 0) != entry.shape.end();
    for (const int64_t dim : entry.shape)
      if (!is_empty && __builtin_mul_overflow(bits, dim, &bits))
        return wrong(fmt::format("of shape {} is too large", shape_text(entry.shape)));
    if (is_empty) bits = 0;
    if (bits % 8 == 0 && bits / 8 == entry.bytes) return {};
    return wrong(fmt::format("is {} {}, which takes {} bytes, but data_offsets give {}",
                             entry.dtype_name, shape_text(entry.shape), (bits + 7) / 8,
                             entry.bytes));
  }

  const std::string& path_;
  const JsonMember& member_;
  std::string name_;
};

Result<void> check_overlap(const std::vector<SafetensorsEntry>& entries, const std::string& path) {
  std::vector<const SafetensorsEntry*> by_offset;
  for (const SafetensorsEntry& entry : entries)
    if (entry.bytes > 0) by_offset.push_back(&entry);
  std::ranges::sort(by_offset, {}, [](const SafetensorsEntry* e) { return e->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const SafetensorsEntry& previous = *by_offset[i - 1];
    if (previous.offset + previous.bytes > by_offset[i]->offset)
      return invalid(path,
                     fmt::format("tensors {} and {} overlap", quote_for_message(previous.name),
                                 quote_for_message(by_offset[i]->name)));
  }
  return {};
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view json,
                                                               const std::string& path,
                                                               int64_t data_offset,
                                                               int64_t data_bytes) {
  auto document =
      parse_json(json, {.source_name = path + " (header)", .stage = Stage::kFile, .max_depth = 4});
  if (!document) {
    Error error = std::move(document).error();
    error.code = ErrorCode::kInvalidFile;
    return tl::make_unexpected(std::move(error));
  }
  if (document->root.kind != JsonKind::kObject)
    return invalid(path, "the header is not a JSON object");
  std::vector<SafetensorsEntry> entries;
  for (const JsonMember& member : document->root.members) {
    if (member.key == "__metadata__") continue;
    MOEJIT_TRY_ASSIGN(SafetensorsEntry entry,
                      EntryReader(path, member).read(data_offset, data_bytes));
    entries.push_back(std::move(entry));
  }
  MOEJIT_TRY(check_overlap(entries, path));
  std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  return entries;
}

}  // namespace moejit::checkpoint
