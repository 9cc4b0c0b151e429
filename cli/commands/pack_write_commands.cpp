// SPDX-License-Identifier: Apache-2.0
// Runs the writing verbs of moejit pack: sign, merge, export.
#include "cache/kernel_cache.h"
#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "cli/commands/pack_commands.h"
#include "cli/terminal/output.h"
#include "compiler/support/file.h"
#include "compiler/support/table.h"
#include "runtime/kernel_compilers.h"
#include "runtime/kernel_pack.h"

#include <ctime>
#include <filesystem>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <system_error>

namespace moejit::cli {
namespace {

// Checks every entry, so that nothing damaged gets into another pack or gets signed.
Result<void> check_all(const cache::Pack& pack) {
  const std::vector<std::string> problems = pack.verify();
  if (problems.empty()) return {};
  return fail(Stage::kCache, ErrorCode::kCacheCorrupt,
              fmt::format("pack {}: {}", pack.path(), problems.front()),
              "moejit pack verify lists all problems");
}

Result<void> add_pack(const std::string& path, const cache::PackTrust& trust,
                      std::vector<cache::Entry>& entries) {
  MOEJIT_TRY_ASSIGN(const auto pack, cache::Pack::open(path, trust));
  MOEJIT_TRY(check_all(*pack));
  MOEJIT_TRY_ASSIGN(const auto places, pack->places());
  for (const cache::Pack::Place& place : places) {
    MOEJIT_TRY_ASSIGN(auto entry, pack->get(place.key));
    if (entry) entries.push_back(std::move(*entry));
  }
  return {};
}

Result<void> add_folder(const std::string& path, const Terminal& terminal,
                        std::vector<cache::Entry>& entries) {
  MOEJIT_TRY_ASSIGN(
      const auto folder,
      cache::KernelCache::open(path, [&terminal](std::string_view text) { terminal.warn(text); }));
  for (const cache::EntryInfo& info : folder->list()) {
    if (!info.problem.empty())
      return fail(Stage::kCache, ErrorCode::kCacheCorrupt,
                  fmt::format("cache entry {}: {}", info.path, info.problem),
                  "the next run or build that needs it makes it again");
    if (auto entry = folder->get(info.key)) entries.push_back(std::move(*entry));
  }
  return {};
}

void print_written(Terminal& terminal, bool is_json, const cache::Pack& pack,
                   std::string_view what) {
  if (is_json) {
    const nlohmann::ordered_json json{{"pack", pack.path()},
                                      {"kernels", pack.size()},
                                      {"bytes", pack.file_bytes()},
                                      {"digest", pack.digest().hex()},
                                      {"signatures", pack.signatures().size()}};
    terminal.print(json_output(json));
    return;
  }
  terminal.print(fmt::format("{} {}: {} kernel{}, {}\n", what, pack.path(), pack.size(),
                             pack.size() == 1 ? "" : "s", bytes_text(pack.file_bytes())));
}

}  // namespace

Result<void> run_pack_sign(const PackSignCommand& command, Terminal& terminal) {
  cache::SignatureTerms terms{.serial = command.serial};
  if (!command.expires.empty()) {
    const auto end = cache::end_of_day(command.expires);
    if (!end)
      return fail(
          Stage::kCommand, ErrorCode::kUsage,
          fmt::format("--expires is \"{}\", wanted a date such as 2027-12-31", command.expires));
    if (*end < std::time(nullptr))
      return fail(
          Stage::kCommand, ErrorCode::kUsage,
          fmt::format("--expires is {}, which is over: every node would refuse the pack",
                      command.expires),
          "give the last day in UTC on which it may be used; without --expires it has no end");
    terms.expires_at = *end;
  }
  MOEJIT_TRY_ASSIGN(const cache::PrivateKey key, cache::read_private_key(command.key));
  MOEJIT_TRY_ASSIGN(const auto pack, cache::Pack::open(command.file, {.is_inspection = true}));
  MOEJIT_TRY(check_all(*pack));
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(command.file));
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> signed_bytes,
                    cache::sign_pack(bytes, pack->digest(), key, terms));
  const std::string& output = command.output.empty() ? command.file : command.output;
  MOEJIT_TRY(cache::write_pack_file(output, signed_bytes));
  MOEJIT_TRY_ASSIGN(const auto written, cache::Pack::open(output, {.is_inspection = true}));
  print_written(terminal, command.is_json, *written, "signed");
  return {};
}

Result<void> run_pack_merge(const PackMergeCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const cache::PackTrust trust, cache::pack_trust(command.keys));
  std::vector<cache::Entry> entries;
  for (const std::string& input : command.inputs) {
    std::error_code ignored;
    if (std::filesystem::is_directory(input, ignored))
      MOEJIT_TRY(add_folder(input, terminal, entries));
    else
      MOEJIT_TRY(add_pack(input, trust, entries));
  }
  // The packs may share entries; each is kept once, since the manifest counts them.
  MOEJIT_TRY_ASSIGN(entries, cache::unique_entries(std::move(entries)));
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes,
                    cache::encode_pack(entries, runtime::pack_manifest(entries)));
  MOEJIT_TRY(cache::write_pack_file(command.output, bytes));
  MOEJIT_TRY_ASSIGN(const auto written, cache::Pack::open(command.output, {.is_inspection = true}));
  print_written(terminal, command.is_json, *written, "wrote");
  return {};
}

Result<void> run_pack_export(const PackExportCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const cache::PackTrust trust, cache::pack_trust(command.keys));
  std::vector<cache::Entry> entries;
  MOEJIT_TRY(add_pack(command.file, trust, entries));
  const std::string manifest = runtime::pack_manifest(entries);
  MOEJIT_TRY_ASSIGN(const auto folder, cache::KernelCache::open(command.output_dir,
                                                                [&terminal](std::string_view text) {
                                                                  terminal.warn(text);
                                                                }));
  for (const runtime::CompilerFields& compiler : runtime::compilers_of(manifest))
    runtime::record_compiler(*folder, compiler);
  for (const cache::Entry& entry : entries)
    if (!folder->put(entry.key, entry.metadata, entry.payload))
      return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                  fmt::format("cache folder {}: entry {} could not be written", folder->folder(),
                              entry.key.hex()),
                  "the warning before says why");
  if (command.is_json) {
    const nlohmann::ordered_json json{
        {"pack", command.file}, {"cache", folder->folder()}, {"kernels", entries.size()}};
    terminal.print(json_output(json));
  } else {
    terminal.print(fmt::format("wrote {} kernel{} to {}\n", entries.size(),
                               entries.size() == 1 ? "" : "s", folder->folder()));
  }
  return {};
}

}  // namespace moejit::cli
