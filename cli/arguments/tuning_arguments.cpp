// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/add_command.h"
#include "cli/commands/tune_options.h"
#include "cli/commands/tuning_commands.h"
#include "cli/commands/tuning_records.h"
#include "runtime/tune/decision/statistics.h"

namespace moejit::cli {

void add_tuning_options(CLI::App& sub, TuningOptions& tuning) {
  CLI::Option* records =
      sub.add_option("--tuning", tuning.records,
                     "Tuning records to plan with, separated by ':'; default: MOEJIT_TUNING")
          ->delimiter(':')
          ->allow_extra_args(false);
  sub.add_flag("--no-tuning{false}", tuning.is_used, "Plan with the usual choices alone")
      ->excludes(records);
}

namespace {

// Adds the options by which both tune and verify measure. The subjects are added apart.
void add_tune_options(CLI::App& sub, TuneOptions& options) {
  tune::MeasureOptions& measured = options.measured;
  sub.add_option("--gemms", options.gemms, "File of grouped GEMMs, as of bench");
  sub.add_option("--target", measured.target, "auto (the GPU where there is one), cuda or sim")
      ->capture_default_str();
  add_pass_option(sub, options.pass);
  add_cache_options(sub, measured.cache);
  add_tokens_option(sub, options.tokens, "max_tokens");
  sub.add_option("--candidate-limit", options.candidate_limit,
                 "Time in which a candidate must be made and run once; it hangs otherwise")
      ->capture_default_str();
  sub.add_option("--block-ms", measured.block_milliseconds,
                 "Milliseconds of launches that are timed together")
      ->check(CLI::Range(0.001, 10000.0))
      ->capture_default_str();
  sub.add_option("--heat-seconds", measured.heat_seconds,
                 "Seconds of launches before the first round of a problem")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  add_seed_option(sub, measured.seed);
}

}  // namespace

void add_tune(CLI::App& app, Action& action) {
  const auto command = add_command<TuneCommand>(
      app, action, "tune", "Measure which choices are the fastest on this GPU",
      "  moejit tune layer.json --output h200.json\n"
      "  moejit tune --gemms gemms.json --budget 10m --output h200.json\n"
      "  moejit tune --replay h200.json.journal\n",
      run_tune);
  CLI::App* sub = app.get_subcommand("tune");
  sub->add_option("LAYER", command->subjects.layers, "Layer descriptions");
  add_tune_options(*sub, command->subjects);
  CLI::Option* replay = sub->add_option("--replay", command->replay,
                                        "Decide by a journal; measures nothing, needs no GPU");
  sub->add_option("--budget", command->budget, "Time to measure for: 90s, 20m, 2h")
      ->capture_default_str();
  sub->add_option("-o,--output", command->output, "Record to write; entries of other problems stay")
      ->check(&check_name);
  sub->add_option("--journal", command->journal,
                  "File of all that is measured; default: the output's name and .journal")
      ->check(&check_name)
      ->excludes(replay);
  CLI::Option* report = sub->add_option("--report", command->report,
                                        "Page in HTML to write: what was measured and found")
                            ->check(&check_name);
  sub->add_option("--exhaustive", command->exhaustive_rounds,
                  "Time all candidates in so many rounds and drop none")
      ->check(CLI::Range(tune::kFewestForInterval, 1000))
      ->excludes(replay);
  sub->add_flag("--resume", command->resumes, "Go on with the journal of a sweep that was ended");
  sub->add_flag("--dry-run", command->is_dry_run, "List what would be measured; needs no GPU")
      ->excludes(replay)
      ->excludes(report);
  sub->add_flag("--compile-only", command->compiles_only,
                "Fill the kernel cache with all candidates; needs no GPU")
      ->excludes(replay)
      ->excludes(report);
  sub->add_flag("--json", command->is_json, "Print JSON");
}

void add_tuning(CLI::App& app, Action& action) {
  CLI::App* tuning =
      app.add_subcommand("tuning", "Look at tuning records, verify, join and prune them");
  tuning->require_subcommand(1);
  tuning->fallthrough();
  tuning->footer(
      "Examples:\n  moejit tuning show h200.json\n"
      "  moejit tuning merge monday.json tuesday.json --output h200.json\n");

  const auto show = add_command<TuningShowCommand>(
      *tuning, action, "show", "List what a record found fastest, and how sure it is",
      "  moejit tuning show h200.json\n", run_tuning_show);
  CLI::App* sub = tuning->get_subcommand("show");
  sub->add_option("RECORD", show->record, "Tuning record")->required();
  sub->add_flag("--json", show->is_json, "Print JSON");

  const auto verify = add_command<TuningVerifyCommand>(
      *tuning, action, "verify",
      "Measure a record's choices again; tell which are no longer faster",
      "  moejit tuning verify h200.json layer.json\n"
      "  moejit tuning verify h200.json layer.json --gemms gemms.json --sample 10\n",
      run_tuning_verify);
  sub = tuning->get_subcommand("verify");
  sub->add_option("RECORD", verify->record, "Tuning record of this GPU")->required();
  sub->add_option("LAYER", verify->subjects.layers, "Layer descriptions that have the problems");
  add_tune_options(*sub, verify->subjects);
  sub->add_option("--sample", verify->sample, "Most entries to measure; default: all")
      ->check(CLI::PositiveNumber);
  sub->add_flag("--json", verify->is_json, "Print JSON");

  const auto merge = add_command<TuningMergeCommand>(
      *tuning, action, "merge", "Join records of one GPU; of two entries the better founded stays",
      "  moejit tuning merge monday.json tuesday.json --output h200.json\n", run_tuning_merge);
  sub = tuning->get_subcommand("merge");
  sub->add_option("RECORD", merge->records, "Tuning records")->required();
  sub->add_option("-o,--output", merge->output, "Record to write")->required()->check(&check_name);

  const auto diff = add_command<TuningDiffCommand>(
      *tuning, action, "diff", "Tell for which problems two records choose differently",
      "  moejit tuning diff old.json new.json\n", run_tuning_diff);
  sub = tuning->get_subcommand("diff");
  sub->add_option("A", diff->a, "Tuning record")->required();
  sub->add_option("B", diff->b, "The other one")->required();
  sub->add_flag("--json", diff->is_json, "Print JSON");

  const auto prune = add_command<TuningPruneCommand>(
      *tuning, action, "prune", "Keep only the entries that the plans of some layers use",
      "  moejit tuning prune h200.json layer.json --output mine.json\n", run_tuning_prune);
  sub = tuning->get_subcommand("prune");
  sub->add_option("RECORD", prune->record, "Tuning record")->required();
  sub->add_option("LAYER", prune->layers, "Descriptions of layers or operations")->required();
  add_pass_option(*sub, prune->pass);
  sub->add_option("-o,--output", prune->output, "Record to write")->required()->check(&check_name);
}

}  // namespace moejit::cli
