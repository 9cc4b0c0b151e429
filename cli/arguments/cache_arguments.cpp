// SPDX-License-Identifier: Apache-2.0
// Adds `moejit cache` and its verbs.
#include "cli/arguments/add_command.h"
#include "cli/commands/cache_commands.h"

#include <memory>
#include <string>
#include <type_traits>

namespace moejit::cli {
namespace {

// Adds a command of `moejit cache`, with the options that all of them have, and returns it.
template <typename Command>
CLI::App& add_cache_command(CLI::App& cache, Action& action, const std::string& name,
                            const std::string& summary, const std::string& examples,
                            Result<void> (*run)(const Command&, Terminal&),
                            std::shared_ptr<Command>& command) {
  command = add_command<Command>(cache, action, name, summary, examples, run);
  CLI::App& sub = *cache.get_subcommand(name);
  CacheCommand* common = nullptr;
  if constexpr (std::is_same_v<Command, CacheCommand>)
    common = command.get();
  else
    common = &command->cache;
  sub.add_option("--cache-dir", common->dir, "Folder of the kernel cache");
  sub.add_flag("--json", common->is_json, "Print JSON");
  return sub;
}

void add_cache_looks(CLI::App& cache, Action& action) {
  std::shared_ptr<CacheCommand> all;
  add_cache_command(cache, action, "ls", "List the kernels in the cache", "  moejit cache ls\n",
                    &run_cache_ls, all);
  std::shared_ptr<CacheShowCommand> show;
  add_cache_command(
      cache, action, "show", "Show one kernel: what it is and what its key is made of",
      "  moejit cache show 13a8b1de287e\n  moejit cache show gemm_fc1\n", &run_cache_show, show)
      .add_option("KEY", show->key, "Key or name of the kernel, or a beginning that only one has")
      ->required();
  std::shared_ptr<CacheWhyCommand> why;
  CLI::App& why_app = add_cache_command(cache, action, "why",
                                        "Tell why kernels of a layer are not in cache and packs",
                                        "  moejit cache why layer.json --target cuda:sm_90a\n"
                                        "  moejit cache why 13a8b1de287e\n",
                                        &run_cache_why, why);
  why_app.add_option("LAYER", why->what, "Layer description, or a key")->required();
  add_plan_options(why_app, why->plan);
  why_app.add_option("--packs", why->packs, "Packs to look into, separated by ':'")
      ->delimiter(':')
      ->allow_extra_args(false);
  why_app.add_option(
      "--pack-keys", why->pack_keys,
      "Key ring: file or folder of public keys; one of them must have signed each pack");
  why_app.add_flag("--frozen", why->is_frozen, "Look as a frozen process does");
  std::shared_ptr<CacheDiffCommand> diff;
  CLI::App& diff_app = add_cache_command(
      cache, action, "diff", "Tell in which fields the keys of two kernels differ",
      "  moejit cache diff 13a8b1de287e 5f0c\n", &run_cache_diff, diff);
  diff_app.add_option("A", diff->a, "Key, or a beginning that only one has")->required();
  diff_app.add_option("B", diff->b, "The other one")->required();
}

void add_cache_upkeep(CLI::App& cache, Action& action) {
  std::shared_ptr<CacheCommand> all;
  add_cache_command(cache, action, "verify", "Check every byte of every entry",
                    "  moejit cache verify\n", &run_cache_verify, all);
  std::shared_ptr<CacheGcCommand> gc;
  CLI::App& gc_app =
      add_cache_command(cache, action, "gc",
                        "Remove the least recently used entries beyond the limits, and leftovers",
                        "  moejit cache gc\n  moejit cache gc --max-bytes 512M --max-files 1000\n",
                        &run_cache_gc, gc);
  gc_app.add_option("--max-bytes", gc->max_bytes,
                    "Instead of MOEJIT_CACHE_MAX_BYTES: 512M, 4G, none");
  gc_app.add_option("--max-files", gc->max_files, "Instead of MOEJIT_CACHE_MAX_FILES");
  add_cache_command(cache, action, "stats", "Print sizes, limits and counters",
                    "  moejit cache stats\n", &run_cache_stats, all);
  std::shared_ptr<CacheClearCommand> clear;
  add_cache_command(cache, action, "clear", "Remove every kernel", "  moejit cache clear --yes\n",
                    &run_cache_clear, clear)
      .add_flag("-y,--yes", clear->is_confirmed, "Do not ask");
}

}  // namespace

void add_cache(CLI::App& app, Action& action) {
  CLI::App* cache = app.add_subcommand("cache", "Look at the kernel cache, and tidy it");
  cache->require_subcommand(1);
  cache->fallthrough();
  cache->footer("Examples:\n  moejit cache ls\n  moejit cache verify --cache-dir kernels\n");
  add_cache_looks(*cache, action);
  add_cache_upkeep(*cache, action);
}

}  // namespace moejit::cli
