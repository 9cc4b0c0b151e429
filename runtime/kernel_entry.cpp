// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_entry.h"

#include "runtime/fold_headers.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace moejit::runtime {
namespace {

using compiler::ResourceUsage;
using nlohmann::json;

struct UsageField {
  const char* name;
  int32_t ResourceUsage::*member;
};

constexpr std::array kUsageFields = {
    UsageField{"registers", &ResourceUsage::registers},
    UsageField{"static_shared_bytes", &ResourceUsage::static_shared_bytes},
    UsageField{"stack_bytes", &ResourceUsage::stack_bytes},
    UsageField{"spill_store_bytes", &ResourceUsage::spill_store_bytes},
    UsageField{"spill_load_bytes", &ResourceUsage::spill_load_bytes},
    UsageField{"code_bytes", &ResourceUsage::code_bytes},
};

std::optional<ResourceUsage> usage_of(const json& object) {
  ResourceUsage usage;
  for (const UsageField& field : kUsageFields) {
    const auto value = object.find(field.name);
    if (value == object.end() || !value->is_number_integer()) return std::nullopt;
    usage.*field.member = value->get<int32_t>();
  }
  return usage;
}

bool is_text(const json& object, const char* name, const std::string& wanted) {
  const auto value = object.find(name);
  return value != object.end() && value->is_string() &&
         value->get_ref<const std::string&>() == wanted;
}

}  // namespace

std::string kernel_metadata(const compiler::KernelBinary& binary, const compiler::KernelKey& key) {
  json object = {{"entry", binary.entry}, {"target", to_string(binary.target)}};
  if (binary.usage)
    for (const UsageField& field : kUsageFields)
      object["usage"][field.name] = (*binary.usage).*field.member;
  object["key"] = json::array();
  for (const HashedField& field : fold_headers(key.fields))
    object["key"].push_back(json::array({field.name, field.value}));
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<compiler::KernelBinary> kernel_of(cache::Entry entry,
                                                const compiler::KernelSource& source) {
  const json object = json::parse(entry.metadata, nullptr, false);
  if (!object.is_object() || !is_text(object, "entry", source.entry) ||
      !is_text(object, "target", to_string(source.target)) || entry.payload.empty())
    return std::nullopt;
  compiler::KernelBinary binary{.entry = source.entry,
                                .target = source.target,
                                .bytes = std::move(entry.payload),
                                .usage = std::nullopt};
  if (const auto usage = object.find("usage"); usage != object.end()) {
    binary.usage = usage_of(*usage);
    if (!binary.usage) return std::nullopt;
  }
  return binary;
}

std::vector<HashedField> key_fields_of(std::string_view metadata) {
  const json object = json::parse(metadata, nullptr, false);
  if (!object.is_object() || !object.contains("key") || !object["key"].is_array()) return {};
  std::vector<HashedField> fields;
  for (const json& field : object["key"]) {
    if (!field.is_array() || field.size() != 2 || !field[0].is_string() || !field[1].is_string())
      return {};
    fields.push_back({field[0].get<std::string>(), field[1].get<std::string>()});
  }
  return unfold_headers(fields);
}

}  // namespace moejit::runtime
