// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/wanted_kernels.h"

#include "compiler/compiler.h"
#include "compiler/kernel_source.h"
#include "runtime/kernel_entry.h"
#include "runtime/kernel_pack.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <tuple>

namespace moejit::cli {
namespace {

using runtime::CompilerFields;

// One readable or damaged entry of the folder.
struct Present {
  Digest key;
  std::string problem;
  std::vector<HashedField> fields;
};

struct FolderContent {
  std::map<Digest, Present> entries;
  std::vector<Digest> quarantined;
  std::vector<CompilerFields> compilers;  // compilers of one target, newest first
};

FolderContent content_of(const KernelPlaces& places, const compiler::Target& target) {
  FolderContent content;
  if (!places.folder) return content;
  for (const cache::EntryInfo& entry : places.folder->list()) {
    Present present{entry.key, entry.problem, runtime::key_fields_of(entry.metadata)};
    if (metadata_text(entry, "target") == to_string(target))
      content.compilers.push_back(runtime::compiler_of(target, present.fields));
    content.entries.emplace(entry.key, std::move(present));
  }
  runtime::order_compilers(content.compilers);
  content.quarantined = places.folder->quarantined();
  return content;
}

bool has_field(const std::vector<FieldDifference>& differences, std::string_view name) {
  return std::ranges::any_of(
      differences, [name](const FieldDifference& difference) { return difference.field == name; });
}

// Returns the kernel's name in a key; empty if the key has none.
std::string_view entry_in(const std::vector<HashedField>& fields) {
  const auto found = std::ranges::find(fields, "entry", &HashedField::name);
  return found == fields.end() ? std::string_view() : std::string_view(found->value);
}

// Finds the nearest entry. A difference in target counts most, then a difference in operation. Then
// it counts how soon the kernels' names begin to differ, and last how many fields differ. A name
// begins with the operation and ends with a digest of the shape. All names of one operation have
// the same number of words, which tells gemm_fc1 from gemm_fc1_dgrad.
void find_nearest(WantedKernel& wanted, const std::vector<HashedField>& fields,
                  const FolderContent& content) {
  const std::string beginning = fmt::format("moejit_{}_", wanted.operation);
  const auto words = std::ranges::count(wanted.entry, '_');
  std::optional<std::tuple<bool, bool, bool, std::ptrdiff_t, size_t>> least;
  for (const auto& [key, candidate] : content.entries) {
    if (candidate.fields.empty()) continue;
    auto differences = differing_fields(fields, candidate.fields);
    const std::string_view entry = entry_in(candidate.fields);
    const bool is_of_operation = entry.starts_with(beginning);
    const std::ptrdiff_t common = std::ranges::mismatch(entry, wanted.entry).in1 - entry.begin();
    const std::tuple distance{has_field(differences, "target"), !is_of_operation,
                              std::ranges::count(entry, '_') != words,
                              std::ssize(wanted.entry) - common, differences.size()};
    if (least && *least <= distance) continue;
    least = distance;
    wanted.is_nearest_of_operation = is_of_operation;
    wanted.nearest = key;
    wanted.differs = std::move(differences);
  }
}

// Looks up a source in folder and packs, with the keys of each compiler in turn.
class Search {
 public:
  Search(const KernelPlaces& places, const FolderContent& content,
         const compiler::KernelSource& source, WantedKernel& wanted)
      : places_(places), content_(content), source_(source), wanted_(wanted) {}

  void run() {
    if (!places_.is_frozen || compiler::is_toolchain_at_hand(source_.target))
      if (const auto identity = compiler::toolchain_identity(source_))
        own_ = compiler::compiler_fields(source_.target, *identity);
    if (is_in_folder() || is_in_packs()) return;
    if (wanted_.problem.empty())
      find_nearest(wanted_, key_ ? key_->fields : compiler::kernel_key(source_, {}).fields,
                   content_);
  }

 private:
  bool is_in_folder() {
    if (!own_.empty() && is_in_folder(own_)) return true;
    return (places_.is_frozen || own_.empty()) &&
           std::ranges::any_of(content_.compilers, [this](const CompilerFields& compiler) {
             return compiler != own_ && is_in_folder(compiler);
           });
  }

  bool is_in_folder(const CompilerFields& compiler) {
    const auto key = key_of(compiler);
    if (!key) return false;
    if (std::ranges::count(content_.quarantined, key->digest) > 0) wanted_.is_quarantined = true;
    const auto found = content_.entries.find(key->digest);
    if (found == content_.entries.end()) return false;
    if (found->second.problem.empty()) return accept(*key, compiler, places_.folder->folder());
    if (wanted_.problem.empty()) wanted_.problem = found->second.problem;
    return false;
  }

  bool is_in_packs() {
    for (const auto& pack : places_.packs)
      for (const CompilerFields& compiler : runtime::compilers_of(pack->manifest())) {
        const auto key = key_of(compiler);
        if (!key) continue;
        const auto entry = pack->get(key->digest);
        wanted_.is_in_pack = entry && *entry;
        if (wanted_.is_in_pack) return accept(*key, compiler, pack->path());
        if (!entry && wanted_.problem.empty()) wanted_.problem = entry.error().message;
      }
    return false;
  }

  // Returns the source's key with a compiler. The first key that it returns is noted as the key
  // that the kernel would get.
  std::optional<compiler::KernelKey> key_of(const CompilerFields& compiler) {
    auto key = runtime::key_with(source_, compiler);
    if (key && !key_) {
      key_ = key;
      note(*key, compiler);
    }
    return key;
  }

  void note(const compiler::KernelKey& key, const CompilerFields& compiler) {
    wanted_.key = key.digest;
    wanted_.compiler = compiler;
    wanted_.is_own_compiler = compiler == own_;
  }

  bool accept(const compiler::KernelKey& key, const CompilerFields& compiler,
              const std::string& place) {
    note(key, compiler);
    wanted_.found_in = place;
    wanted_.problem.clear();
    return true;
  }

  const KernelPlaces& places_;
  const FolderContent& content_;
  const compiler::KernelSource& source_;
  WantedKernel& wanted_;
  CompilerFields own_;  // empty: no compiler here, or it does not matter
  std::optional<compiler::KernelKey> key_;
};

}  // namespace

Result<std::vector<WantedKernel>> look_for(const compiler::Plan& plan, const KernelPlaces& places) {
  const FolderContent content = content_of(places, plan.target);
  std::vector<WantedKernel> all;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                      compiler::emit_kernel(kernel, plan.target));
    WantedKernel wanted{.operation = kernel.operation, .entry = source.entry};
    Search(places, content, source, wanted).run();
    all.push_back(std::move(wanted));
  }
  return all;
}

}  // namespace moejit::cli
