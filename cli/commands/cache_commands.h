// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/tuning_records.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"

#include <string>
#include <vector>

namespace moejit::cli {

// The commands on the kernel cache. Each has a record, which the command line fills
// (docs/cli.md), and the function that does it. Results go to the terminal's print().

struct CacheCommand {
  std::string dir;  // empty: the default folder
  bool is_json = false;
};
Result<void> run_cache_ls(const CacheCommand& command, Terminal& terminal);
Result<void> run_cache_verify(const CacheCommand& command, Terminal& terminal);
Result<void> run_cache_stats(const CacheCommand& command, Terminal& terminal);

struct CacheShowCommand {
  CacheCommand cache;
  std::string key;  // or the beginning of one
};
Result<void> run_cache_show(const CacheShowCommand& command, Terminal& terminal);

struct CacheWhyCommand {
  CacheCommand cache;
  std::string what;  // a layer description, or a key
  PlanArguments plan;
  std::vector<std::string> packs;  // these three as in CacheOptions
  std::string pack_keys;
  bool is_frozen = false;
};
Result<void> run_cache_why(const CacheWhyCommand& command, Terminal& terminal);

struct CacheDiffCommand {
  CacheCommand cache;
  std::string a, b;  // keys, or their beginnings
};
Result<void> run_cache_diff(const CacheDiffCommand& command, Terminal& terminal);

struct CacheGcCommand {
  CacheCommand cache;
  std::string max_bytes;  // empty: the cache's own limit
  std::string max_files;
};
Result<void> run_cache_gc(const CacheGcCommand& command, Terminal& terminal);

struct CacheClearCommand {
  CacheCommand cache;
  bool is_confirmed = false;  // do not ask
};
Result<void> run_cache_clear(const CacheClearCommand& command, Terminal& terminal);

}  // namespace moejit::cli
