// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_entry.h"

#include "compiler/support/json_text.h"

#include <array>
#include <utility>

namespace moejit::runtime {
namespace {

using compiler::ResourceUsage;

struct UsageField {
  const char* name;
  int32_t ResourceUsage::*member;
};

constexpr std::array kUsageFields = {
    UsageField{"code_bytes", &ResourceUsage::code_bytes},
    UsageField{"registers", &ResourceUsage::registers},
    UsageField{"spill_load_bytes", &ResourceUsage::spill_load_bytes},
    UsageField{"spill_store_bytes", &ResourceUsage::spill_store_bytes},
    UsageField{"stack_bytes", &ResourceUsage::stack_bytes},
    UsageField{"static_shared_bytes", &ResourceUsage::static_shared_bytes},
};

std::optional<ResourceUsage> usage_of(const JsonValue& object) {
  ResourceUsage usage;
  for (const UsageField& field : kUsageFields) {
    const JsonValue* const value = find_member(object, field.name);
    if (value == nullptr || !value->integer || !std::in_range<int32_t>(*value->integer))
      return std::nullopt;
    usage.*field.member = static_cast<int32_t>(*value->integer);
  }
  return usage;
}

bool is_text(const JsonValue& object, const char* name, const std::string& wanted) {
  const JsonValue* const value = find_member(object, name);
  return value != nullptr && value->kind == JsonKind::kString && value->text == wanted;
}

}  // namespace

std::string kernel_metadata(const compiler::KernelBinary& binary, const compiler::KernelKey& key) {
  Json fields = Json::array();
  for (const HashedField& field : key.fields)
    fields.push_back(
        std::vector<std::string_view>{field.name, stored_value(field.name, field.value)});
  Json object = {{"entry", binary.entry}, {"key", fields}, {"target", to_string(binary.target)}};
  if (binary.usage) {
    Json usage = Json::object();
    for (const UsageField& field : kUsageFields) usage[field.name] = (*binary.usage).*field.member;
    object["usage"] = usage;
  }
  return object.dump();
}

std::optional<compiler::KernelBinary> kernel_of(cache::Entry entry,
                                                const compiler::KernelSource& source) {
  const auto metadata = parse_json(entry.metadata, {.source_name = "metadata"});
  if (!metadata || !is_text(metadata->root, "entry", source.entry) ||
      !is_text(metadata->root, "target", to_string(source.target)) || entry.payload.empty())
    return std::nullopt;
  compiler::KernelBinary binary{.entry = source.entry,
                                .target = source.target,
                                .bytes = std::move(entry.payload),
                                .usage = std::nullopt};
  if (const JsonValue* const usage = find_member(metadata->root, "usage")) {
    binary.usage = usage_of(*usage);
    if (!binary.usage) return std::nullopt;
  }
  return binary;
}

std::vector<HashedField> key_fields_of(std::string_view metadata) {
  const auto document = parse_json(metadata, {.source_name = "metadata"});
  const JsonValue* const key = document ? find_member(document->root, "key") : nullptr;
  if (key == nullptr) return {};
  std::vector<HashedField> fields;
  for (const JsonValue& field : key->elements) {
    const auto pair = read_strings(field);
    if (!pair || pair->size() != 2) return {};
    fields.push_back({(*pair)[0], (*pair)[1]});
  }
  return fields;
}

std::string_view stored_value(std::string_view field, std::string_view value) {
  constexpr std::size_t kHeaderDigits = 8;  // tell people which header changed
  const bool is_header = field.starts_with("header:") || field.starts_with("header ");
  return is_header && Digest::from_hex(value) ? value.substr(0, kHeaderDigits) : value;
}

}  // namespace moejit::runtime
