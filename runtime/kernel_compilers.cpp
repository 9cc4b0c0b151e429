// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_compilers.h"

#include "compiler/compiler.h"
#include "runtime/kernel_entry.h"
#include "runtime/kernel_pack.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <mutex>

namespace moejit::runtime {
namespace {

// Compares as versions: "12.10" is greater than "12.9".
bool is_greater(const CompilerFields& a, const CompilerFields& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (const int order = ::strverscmp(a[i].c_str(), b[i].c_str()); order != 0) return order > 0;
  return a.size() > b.size();
}

// Returns the target that an entry's metadata names, or none if there is no such target.
std::optional<compiler::Target> target_of(std::span<const HashedField> key) {
  const auto field = std::ranges::find(key, "target", &HashedField::name);
  if (field == key.end()) return std::nullopt;
  auto target = compiler::parse_target(field->value);
  return target ? std::optional(*target) : std::nullopt;
}

}  // namespace

CompilerFields compiler_of(const compiler::Target& target, std::span<const HashedField> key) {
  std::vector<std::string> fields;
  for (const HashedField& field : key)
    fields.push_back(fmt::format("{}={}", field.name, field.value));
  return compiler::compiler_fields(target, fields);
}

std::string compiler_name(const CompilerFields& compiler) {
  const std::string name = compiler.empty() ? "" : compiler.front();
  return name.substr(name.find('=') + 1);
}

void order_compilers(std::vector<CompilerFields>& compilers) {
  std::ranges::sort(compilers, is_greater);
  compilers.erase(std::unique(compilers.begin(), compilers.end()), compilers.end());
}

std::optional<compiler::KernelKey> key_with(const compiler::KernelSource& source,
                                            const CompilerFields& compiler) {
  const auto identity = compiler::toolchain_identity_with(source, compiler);
  if (!identity || !*identity) return std::nullopt;
  return compiler::kernel_key(source, **identity);
}

Result<OwnKey> own_key(const compiler::KernelSource& source, std::optional<OwnKey> known) {
  if (known) {
    // A source without text has no headers.
    MOEJIT_TRY_ASSIGN(
        const std::vector<std::string> identity,
        compiler::toolchain_identity({.entry = {}, .text = {}, .target = source.target}));
    if (compiler::compiler_fields(source.target, identity) == known->compiler)
      return std::move(*known);
  }
  MOEJIT_TRY_ASSIGN(const std::vector<std::string> identity, compiler::toolchain_identity(source));
  return OwnKey{compiler::kernel_key(source, identity),
                compiler::compiler_fields(source.target, identity)};
}

void record_compiler(cache::KernelCache& folder, const CompilerFields& compiler) {
  if (!compiler.empty()) folder.add_compiler(compilers_text({&compiler, 1}));
}

std::vector<CompilerFields> recorded_compilers(const cache::KernelCache& folder) {
  std::vector<CompilerFields> compilers;
  for (const std::string& record : folder.compilers())
    for (CompilerFields& compiler : compilers_of(record)) compilers.push_back(std::move(compiler));
  order_compilers(compilers);
  return compilers;
}

std::vector<CompilerFields> compilers_of_entries(const cache::KernelCache& folder) {
  std::vector<CompilerFields> compilers;
  for (const Digest& key : folder.keys()) {
    const auto entry = folder.inspect(key);
    if (!entry || !entry->problem.empty()) continue;
    const std::vector<HashedField> fields = key_fields_of(entry->metadata);
    const auto target = target_of(fields);
    CompilerFields compiler = target ? compiler_of(*target, fields) : CompilerFields();
    if (!compiler.empty() && std::ranges::count(compilers, compiler) == 0)
      compilers.push_back(std::move(compiler));
  }
  order_compilers(compilers);
  return compilers;
}

std::vector<CompilerFields> FolderCompilers::all() {
  const std::lock_guard lock(mutex_);
  if (!has_read_records_) known_ = recorded_compilers(folder_);
  has_read_records_ = true;
  return known_;
}

std::vector<CompilerFields> FolderCompilers::look_closer() {
  const std::lock_guard lock(mutex_);
  const auto add = [this](const std::vector<CompilerFields>& found) {
    known_.insert(known_.end(), found.begin(), found.end());
  };
  add(recorded_compilers(folder_));
  if (!has_read_entries_) {
    const std::vector<CompilerFields> found = compilers_of_entries(folder_);
    for (const CompilerFields& compiler : found) record_compiler(folder_, compiler);
    add(found);
  }
  has_read_records_ = has_read_entries_ = true;
  order_compilers(known_);
  return known_;
}

}  // namespace moejit::runtime
