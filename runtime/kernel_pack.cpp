// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_pack.h"

#include "compiler/compiler.h"
#include "runtime/kernel_entry.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>

namespace moejit::runtime {
namespace {

using nlohmann::json;

// The key's fields in an entry's metadata, as "name=value".
std::vector<std::string> key_fields(const json& metadata) {
  std::vector<std::string> fields;
  const auto key = metadata.find("key");
  if (key == metadata.end() || !key->is_array()) return fields;
  for (const json& field : *key)
    if (field.is_array() && field.size() == 2 && field[0].is_string() && field[1].is_string())
      fields.push_back(fmt::format("{}={}", field[0].get_ref<const std::string&>(),
                                   field[1].get_ref<const std::string&>()));
  return fields;
}

}  // namespace

cache::Entry kernel_entry(const compiler::KernelBinary& binary, const compiler::KernelKey& key) {
  return {.key = key.digest, .metadata = kernel_metadata(binary, key), .payload = binary.bytes};
}

std::string pack_manifest(std::span<const cache::Entry> entries) {
  std::set<std::string> targets;
  std::set<std::vector<std::string>> compilers;
  for (const cache::Entry& entry : entries) {
    const json metadata = json::parse(entry.metadata, nullptr, false);
    if (!metadata.is_object() || !metadata.contains("target") || !metadata["target"].is_string())
      continue;
    const std::string name = metadata["target"].get<std::string>();
    const auto target = compiler::parse_target(name);
    if (!target) continue;
    targets.insert(name);
    compilers.insert(compiler::compiler_fields(*target, key_fields(metadata)));
  }
  const json manifest = {
      {"kernels", entries.size()}, {"targets", targets}, {"compilers", compilers}};
  return manifest.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string compilers_text(std::span<const std::vector<std::string>> compilers) {
  json text;
  text["compilers"] = std::vector(compilers.begin(), compilers.end());
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::vector<std::string>> compilers_of(std::string_view manifest) {
  const json object = json::parse(manifest, nullptr, false);
  std::vector<std::vector<std::string>> compilers;
  if (!object.is_object() || !object.contains("compilers") || !object["compilers"].is_array())
    return compilers;
  for (const json& compiler : object["compilers"]) {
    if (!compiler.is_array()) continue;
    std::vector<std::string> fields;
    for (const json& field : compiler)
      if (field.is_string()) fields.push_back(field.get<std::string>());
    compilers.push_back(std::move(fields));
  }
  return compilers;
}

}  // namespace moejit::runtime
