// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "cli/commands/cache_commands.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::cli {

// Opens the cache of a command. Errors: kCacheUnusable, also if the command will write and the
// folder is read-only; kFileRead if the file system fails.
enum class CacheAccess { kRead, kWrite };
Result<std::unique_ptr<cache::KernelCache>> open_cache(
    const CacheCommand& command, const Terminal& terminal, CacheAccess access = CacheAccess::kRead,
    cache::CacheSettings settings = cache::settings_of_environment());

// Returns the key of the entry that the text means. The text is 64 digits, the beginning of one
// entry's key, or the path of its file. Else it is the beginning of one entry's kernel name, with
// or without "moejit_". Error kUsage: no entry fits, or more than one.
Result<Digest> find_key(const cache::KernelCache& cache, const std::string& text);

// Returns a text in an entry's metadata, such as "target"; "?" if the entry is damaged.
std::string metadata_text(const cache::EntryInfo& entry, const char* name);

// A field in which two keys differ; a value is empty if the key has no such field.
struct FieldDifference {
  std::string field;
  std::string a, b;
};
// Returns the differing fields in the order of `a`, then those that only `b` has. Fields of the
// same name are compared in turn, digests of headers as far as both were stored.
std::vector<FieldDifference> differing_fields(std::span<const HashedField> a,
                                              std::span<const HashedField> b);

// Returns the differences as JSON, each with its "field", its values under the names `a` and `b`,
// and its "reason".
nlohmann::ordered_json differences_json(std::span<const FieldDifference> differences, const char* a,
                                        const char* b);
// Returns a text from a file, of any length and content, as a cell of a table. A text of more than
// `most` bytes is cut and ends in "..."; control characters become "?". The limit is there because
// a column is as wide as its widest cell.
std::string cell_text(std::string_view text, std::size_t most = 96);
// Returns the cells for two values that differ; "(none)" for a missing value. Long values lose
// their common beginning, so that the difference is seen.
std::pair<std::string, std::string> short_texts(std::string_view a, std::string_view b);

// Returns a phrase that says what a difference in this field means.
std::string_view reason_of(std::string_view field);

}  // namespace moejit::cli
