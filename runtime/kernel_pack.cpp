// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_pack.h"

#include "compiler/compiler.h"
#include "compiler/support/json_text.h"
#include "runtime/kernel_entry.h"

#include <fmt/core.h>
#include <set>

namespace moejit::runtime {
namespace {

// Returns the key's fields in an entry's metadata, as "name=value".
std::vector<std::string> key_fields(const JsonValue& metadata) {
  std::vector<std::string> fields;
  const JsonValue* const key = find_member(metadata, "key");
  if (key == nullptr) return fields;
  for (const JsonValue& field : key->elements)
    if (const auto pair = read_strings(field); pair && pair->size() == 2)
      fields.push_back(fmt::format("{}={}", (*pair)[0], (*pair)[1]));
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
    const auto metadata = parse_json(entry.metadata, {.source_name = "metadata"});
    const JsonValue* const name = metadata ? find_member(metadata->root, "target") : nullptr;
    if (name == nullptr || name->kind != JsonKind::kString) continue;
    const auto target = compiler::parse_target(name->text);
    if (!target) continue;
    targets.insert(name->text);
    compilers.insert(compiler::compiler_fields(*target, key_fields(metadata->root)));
  }
  return Json({{"compilers", std::vector(compilers.begin(), compilers.end())},
               {"kernels", entries.size()},
               {"targets", std::vector(targets.begin(), targets.end())}})
      .dump();
}

std::string compilers_text(std::span<const std::vector<std::string>> compilers) {
  return Json({{"compilers", std::vector(compilers.begin(), compilers.end())}}).dump();
}

std::vector<std::vector<std::string>> compilers_of(std::string_view manifest) {
  const auto document = parse_json(manifest, {.source_name = "manifest"});
  const JsonValue* const all = document ? find_member(document->root, "compilers") : nullptr;
  std::vector<std::vector<std::string>> compilers;
  if (all == nullptr) return compilers;
  for (const JsonValue& compiler : all->elements)
    if (auto fields = read_strings(compiler)) compilers.push_back(std::move(*fields));
  return compilers;
}

}  // namespace moejit::runtime
