// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/inputs/layer_inputs.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// One record per command, filled from the command line (docs/cli.md), and the function that does
// it. Results go to the terminal's print().

struct LayerCommand {
  std::string file;               // a description to check, or
  std::string from_hugging_face;  // a model's config.json
  std::string recipe = "fp8_flow";
  std::string made_for;  // "torch": a list of the layers that moejit.torch asks for; empty: one
  int32_t expert_parallel = 1;
  int64_t max_tokens = 8192;
  std::string output;  // empty: print
};
Result<void> run_layer(const LayerCommand& command, Terminal& terminal);

struct ActivationCommand {
  std::string formula;  // over gate and up, or the name of a preset
};
Result<void> run_activation(const ActivationCommand& command, Terminal& terminal);

// The tuning records that plans are made with.
struct TuningOptions {
  std::vector<std::string> records;  // empty: those of MOEJIT_TUNING
  bool is_used = true;
};

struct PlanCommand {
  std::vector<std::string> layers;
  std::string target = "cuda:sm_90a";
  std::string pass;  // "forward", "training", or empty: what the description says
  TuningOptions tuning;
  bool is_json = false;
  bool explain = false;
};
Result<void> run_plan(const PlanCommand& command, Terminal& terminal);

struct EmitCommand {
  std::vector<std::string> layers;
  std::string target = "cuda:sm_90a";
  std::string pass;  // as of PlanCommand
  TuningOptions tuning;
  std::string operation;   // empty: all
  std::string output_dir;  // empty: print
};
Result<void> run_emit(const EmitCommand& command, Terminal& terminal);

// Where kernels come from; shared by the commands that need compiled ones.
struct CacheOptions {
  std::string dir;  // empty: the default folder
  bool is_disabled = false;
  bool is_frozen = false;
  std::vector<std::string> packs;  // empty: those of MOEJIT_PACKS
  bool uses_packs = true;
  bool own_compiler_only = false;  // as in runtime::EngineOptions
  std::string pack_keys;           // empty: MOEJIT_PACK_KEYS
  // Text behind "moejit build" in the error of a frozen cache; empty: unknown.
  std::string build_arguments;
};

struct BuildCommand {
  std::vector<std::string> layers;
  std::string target = "cuda:sm_90a";
  CacheOptions cache;
  TuningOptions tuning;
  int32_t jobs = 0;  // 0: one per core
  bool with_intermediates = false;
  std::string variants;   // "described", "all"; empty: all for a pack, else described
  std::string pack;       // file to write; empty: none
  bool is_quiet = false;  // a line for each layer instead of one for each kernel
  bool is_json = false;
};
Result<void> run_build(const BuildCommand& command, Terminal& terminal);

struct RunCommand {
  std::string layer;
  std::string target = "auto";
  CacheOptions cache;
  TuningOptions tuning;
  InputOptions inputs;
  int32_t ranks = 0;             // of a group in this process; 0: the layer is of one rank
  std::string pass = "forward";  // or "backward": both
  std::string output;            // empty: nothing is written
  bool dump_intermediates = false;
  bool check = false;
  bool is_strict = false;  // a set status word is an error
  bool is_json = false;
};
Result<void> run_run(const RunCommand& command, Terminal& terminal);

struct BenchCommand {
  std::string layer;               // a description, or
  std::string gemms;               // a file of GEMM cases,
  std::vector<std::string> cases;  // of which only these; empty: all
  std::string target = "auto";
  CacheOptions cache;
  TuningOptions tuning;
  std::string pass = "forward";   // or "training": forward and backward
  std::optional<int64_t> tokens;  // default: max_tokens
  int32_t ranks = 0;              // of a layer with expert_parallel; 0: the layer is of one rank
  int32_t repeat = 20;
  double hot_seconds = 0.35;
  uint64_t seed = 0;
  RandomRouting routing = RandomRouting::kSkewed;
  std::string report;  // a page to write; empty: none
  bool is_json = false;
  std::string command_line;  // as the process got it, for the report
};
Result<void> run_bench(const BenchCommand& command, Terminal& terminal);

struct InspectCommand {
  std::vector<std::string> files;  // layer descriptions, cubins and cache entries
  std::string target = "cuda:sm_90a";
  std::string pass;  // as of PlanCommand
  CacheOptions cache;
  TuningOptions tuning;
  bool with_sass = false;  // print the machine code
  bool is_json = false;
};
Result<void> run_inspect(const InspectCommand& command, Terminal& terminal);

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
  std::string target = "cuda:sm_90a";
  std::string pass;  // as of PlanCommand
  TuningOptions tuning;
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

struct PackCommand {
  std::string file;
  std::string keys;  // key ring; empty: MOEJIT_PACK_KEYS
  bool is_json = false;
};
Result<void> run_pack_ls(const PackCommand& command, Terminal& terminal);
Result<void> run_pack_verify(const PackCommand& command, Terminal& terminal);

struct PackSignCommand {
  std::string file;
  std::string key;     // private, PEM
  std::string output;  // empty: the file itself
  uint64_t serial = 0;
  std::string expires;  // "2027-12-31"; empty: never
  bool is_json = false;
};
Result<void> run_pack_sign(const PackSignCommand& command, Terminal& terminal);

struct PackMergeCommand {
  std::vector<std::string> inputs;  // packs and cache folders
  std::string output;
  std::string keys;
  bool is_json = false;
};
Result<void> run_pack_merge(const PackMergeCommand& command, Terminal& terminal);

struct PackExportCommand {
  std::string file;
  std::string output_dir;  // a cache folder
  std::string keys;
  bool is_json = false;
};
Result<void> run_pack_export(const PackExportCommand& command, Terminal& terminal);

// What a tuner measures, and how.
struct MeasureOptions {
  std::vector<std::string> layers;
  std::string gemms;  // a file of GEMM cases
  std::string target = "auto";
  std::string pass;  // as of PlanCommand
  CacheOptions cache;
  std::optional<int64_t> tokens;        // default: max_tokens
  std::string candidate_limit = "60s";  // for a candidate to be made and to run once
  double block_milliseconds = 100.0;
  double heat_seconds = 0.6;
  uint64_t seed = 0;
};

struct TuneCommand {
  MeasureOptions measured;
  std::string replay;  // a journal to decide by instead of measuring
  std::string budget = "20m";
  std::string output;             // the record
  std::string journal;            // empty: the output's name and ".journal"
  std::string report;             // a page to write; empty: none
  int32_t exhaustive_rounds = 0;  // in which all candidates are timed; 0: a race
  bool resumes = false;
  bool is_dry_run = false;
  bool compiles_only = false;  // for the target cuda
  bool is_json = false;
};
Result<void> run_tune(const TuneCommand& command, Terminal& terminal);

struct TuningShowCommand {
  std::string record;
  bool is_json = false;
};
Result<void> run_tuning_show(const TuningShowCommand& command, Terminal& terminal);

struct TuningVerifyCommand {
  std::string record;
  MeasureOptions measured;
  std::optional<int64_t> sample;  // most entries to measure; default: all
  bool is_json = false;
};
Result<void> run_tuning_verify(const TuningVerifyCommand& command, Terminal& terminal);

struct TuningMergeCommand {
  std::vector<std::string> records;
  std::string output;
};
Result<void> run_tuning_merge(const TuningMergeCommand& command, Terminal& terminal);

struct TuningDiffCommand {
  std::string a, b;  // records
  bool is_json = false;
};
Result<void> run_tuning_diff(const TuningDiffCommand& command, Terminal& terminal);

struct TuningPruneCommand {
  std::string record;
  std::vector<std::string> layers;  // of layers or operations
  std::string pass;                 // as of PlanCommand
  std::string output;
};
Result<void> run_tuning_prune(const TuningPruneCommand& command, Terminal& terminal);

// The command that CompileOptions::worker starts; people do not use it.
struct CompileWorkerCommand {
  int32_t parent = 0;
};
Result<void> run_compile_worker(const CompileWorkerCommand& command, Terminal& terminal);

struct EnvCommand {
  bool is_json = false;
};
Result<void> run_env(const EnvCommand& command, Terminal& terminal);

}  // namespace moejit::cli
