// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include "cli/add_command.h"
#include "cli/commands/commands.h"
#include "cli/terminal/shell_word.h"
#include "compiler/support/json_document.h"
#include "compiler/support/nearest_name.h"

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace moejit::cli {
namespace {

constexpr const char* kTargetHelp = "cuda:sm_90a (short: cuda) or sim";
constexpr const char* kRunTargetHelp = "auto (the GPU where there is one, else sim), cuda or sim";

void add_cache_options(CLI::App& sub, CacheOptions& cache) {
  sub.add_option("--cache-dir", cache.dir, "Folder of the kernel cache (see docs/environment.md)");
  sub.add_flag("--no-cache", cache.is_disabled, "Neither read nor write a cache on disk");
  sub.add_flag("--frozen", cache.is_frozen,
               "Compile nothing: a kernel not in the cache is an error");
  sub.add_option("--packs", cache.packs, "Packs to take kernels from, separated by ':'")
      ->delimiter(':')
      ->excludes("--no-cache");
  sub.add_option("--pack-keys", cache.pack_keys,
                 "Key ring: file or folder of public keys, one of which has to have signed a pack");
}

void add_layer(CLI::App& app, Action& action) {
  const auto command = add_command<LayerCommand>(
      app, action, "layer", "Check a layer description, or make one from a model's config.json",
      "  moejit layer layer.json\n"
      "  moejit layer --from-hf config.json --expert-parallel 8 --output layer.json\n",
      run_layer);
  CLI::App* sub = app.get_subcommand("layer");
  sub->add_option("LAYER", command->file, "Description to check; printed with all fields");
  sub->add_option("--from-hf", command->from_hugging_face,
                  "config.json of a model on Hugging Face");
  sub->add_option("--expert-parallel,--ep", command->expert_parallel,
                  "Ranks that share the experts")
      ->capture_default_str();
  sub->add_option("--max-tokens", command->max_tokens, "Largest number of tokens of one call")
      ->capture_default_str();
  sub->add_option("-o,--output", command->output, "Write to this file instead of printing")
      ->check(&check_name);
}

void add_activation(CLI::App& app, Action& action) {
  const auto command = add_command<ActivationCommand>(
      app, action, "activation",
      "Show an activation's derivatives, its code, and where it is not finite",
      "  moejit activation clamped_swiglu\n"
      "  moejit activation 'tanh(gate) * up'\n",
      run_activation);
  app.get_subcommand("activation")
      ->add_option("FORMULA", command->formula, "Formula over gate and up, or a preset's name")
      ->required();
}

void add_plan(CLI::App& app, Action& action) {
  const auto command = add_command<PlanCommand>(
      app, action, "plan", "Show kernels, tensors, memory and launches of a layer",
      "  moejit plan layer.json\n"
      "  moejit plan layer.json --explain\n"
      "  moejit plan layer.json --target sim --json\n",
      run_plan);
  CLI::App* sub = app.get_subcommand("plan");
  sub->add_option("LAYER", command->layer, "Layer description")->required();
  sub->add_option("--target", command->target, kTargetHelp)->capture_default_str();
  sub->add_flag("--json", command->is_json, "Print JSON");
  sub->add_flag("--explain", command->explain, "Add the reason for each choice");
}

void add_emit(CLI::App& app, Action& action) {
  const auto command =
      add_command<EmitCommand>(app, action, "emit", "Print the CUDA source of a layer's kernels",
                               "  moejit emit layer.json --operation gemm_fc2\n"
                               "  moejit emit layer.json --output-dir sources\n",
                               run_emit);
  CLI::App* sub = app.get_subcommand("emit");
  sub->add_option("LAYER", command->layer, "Layer description")->required();
  sub->add_option("--target", command->target, kTargetHelp)->capture_default_str();
  sub->add_option("--operation", command->operation, "Only this kernel of the plan");
  sub->add_option("--output-dir", command->output_dir, "One file OPERATION.cu per kernel there")
      ->check(&check_name);
}

void add_build(CLI::App& app, Action& action) {
  const auto command = add_command<BuildCommand>(
      app, action, "build", "Compile layers into the kernel cache; needs no GPU",
      "  moejit build layer.json\n"
      "  moejit build *.json --cache-dir kernels --jobs 8 --json\n"
      "  moejit build *.json --arch sm_90a --pack kernels.moejitpack\n",
      run_build);
  CLI::App* sub = app.get_subcommand("build");
  sub->add_option("LAYER", command->layers, "Layer descriptions")->required();
  CLI::Option* target =
      sub->add_option("--target", command->target, kTargetHelp)->capture_default_str();
  sub->add_option_function<std::string>(
         "--arch", [command](const std::string& arch) { command->target = "cuda:" + arch; },
         "sm_90a: short for --target cuda:sm_90a")
      ->excludes(target);
  add_cache_options(*sub, command->cache);
  sub->add_option("-j,--jobs", command->jobs,
                  "Kernels compiled at a time; 0: as cores and memory allow")
      ->capture_default_str();
  sub->add_flag("--with-intermediates", command->with_intermediates,
                "Also the kernels that run --dump-intermediates and --check use");
  sub->add_option("--variants", command->variants,
                  "described: what the descriptions say; all: all passes, kernels fused and apart, "
                  "with and without intermediates. Default: all with --pack, else described")
      ->check(CLI::IsMember({"described", "all"}));
  sub->add_option("--pack", command->pack, "Write the kernels to this file, too")
      ->check(&check_name)
      ->excludes("--packs");
  sub->add_flag("--json", command->is_json, "Print JSON");
}

void add_run(CLI::App& app, Action& action) {
  const auto command = add_command<RunCommand>(
      app, action, "run", "Run a layer on given or random tokens",
      "  moejit run layer.json --check\n"
      "  moejit run layer.json --pass backward --check\n"
      "  moejit run layer.json --target sim --input in.safetensors --output out.safetensors\n"
      "  moejit run layer.json --weights model-*.safetensors --prefix model.layers.3.mlp\n",
      run_run);
  CLI::App* sub = app.get_subcommand("run");
  sub->add_option("LAYER", command->layer, "Layer description")->required();
  sub->add_option("--target", command->target, kRunTargetHelp)->capture_default_str();
  sub->add_option("--pass", command->pass, "forward, or backward: that and then the gradients")
      ->check(CLI::IsMember({"forward", "backward"}))
      ->capture_default_str();
  add_cache_options(*sub, command->cache);
  InputOptions& inputs = command->inputs;
  CLI::Option* input = sub->add_option("--input", inputs.input_path,
                                       "safetensors file with x, topk_ids, topk_probs, w1, w2; dy");
  sub->add_option("--tokens", inputs.tokens, "T of random data; default: 128, at most max_tokens")
      ->excludes(input);
  sub->add_option("--seed", inputs.seed, "Of random data and of the simulator's fiber order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI::Option* weights =
      sub->add_option("--weights", inputs.checkpoint.shards, "Shards of a Hugging Face checkpoint");
  sub->add_option("--prefix", inputs.checkpoint.prefix,
                  "What stands before .experts.N in tensor names: model.layers.3.mlp")
      ->needs(weights);
  sub->add_option("--first-expert", inputs.checkpoint.first_expert,
                  "Number in the checkpoint of the first local expert")
      ->needs(weights)
      ->capture_default_str();
  sub->add_option("-o,--output", command->output, "safetensors file for y; dx, dprobs, dw1, dw2")
      ->check(&check_name);
  sub->add_flag("--dump-intermediates", command->dump_intermediates,
                "Write every intermediate tensor beside y");
  sub->add_flag("--check", command->check, "Compare every kernel with the CPU reference");
  sub->add_flag("--strict", command->is_strict, "Bad expert ids and too many rows are errors");
  sub->add_flag("--json", command->is_json, "Print JSON");
}

void add_bench(CLI::App& app, Action& action, const std::string& command_line) {
  const auto command = add_command<BenchCommand>(
      app, action, "bench", "Time each kernel of a layer on the GPU, or grouped GEMMs without one",
      "  moejit bench layer.json\n"
      "  moejit bench layer.json --tokens 4096 --repeat 50 --json\n"
      "  moejit bench layer.json --pass training\n"
      "  moejit bench --gemms gemms.json --case dsv3_fc1 --case dsv3_fc2\n",
      run_bench);
  command->command_line = command_line;
  CLI::App* sub = app.get_subcommand("bench");
  sub->add_option("LAYER", command->layer, "Layer description");
  CLI::Option* gemms =
      sub->add_option("--gemms", command->gemms, "File of GEMM cases (docs/cli.md)");
  sub->add_option("--case", command->cases, "Only the case of this name; may be repeated")
      ->needs(gemms);
  sub->add_option("--target", command->target, "auto or cuda")->capture_default_str();
  add_cache_options(*sub, command->cache);
  sub->add_option("--pass", command->pass, "forward, or training: forward and backward")
      ->check(CLI::IsMember({"forward", "training"}))
      ->excludes(gemms)
      ->capture_default_str();
  sub->add_option("--tokens", command->tokens, "T; default: max_tokens")->excludes(gemms);
  sub->add_option("--repeat", command->repeat, "Cool launches whose median counts")
      ->capture_default_str();
  sub->add_option("--hot-seconds", command->hot_seconds,
                  "How long each kernel is launched back to back, at least")
      ->capture_default_str();
  sub->add_option("--seed", command->seed, "Of the random data")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->add_flag("--json", command->is_json, "Print JSON");
}

void add_inspect(CLI::App& app, Action& action) {
  const auto command = add_command<InspectCommand>(
      app, action, "inspect",
      "Show registers, shared memory, spills, code size and matrix instructions",
      "  moejit inspect layer.json\n"
      "  moejit inspect layer.json --sass\n"
      "  moejit inspect kernel.cubin\n",
      run_inspect);
  CLI::App* sub = app.get_subcommand("inspect");
  sub->add_option("FILE", command->file, "Layer description, cubin or cache entry")->required();
  sub->add_option("--target", command->target, "Of a layer description")->capture_default_str();
  add_cache_options(*sub, command->cache);
  sub->add_flag("--sass", command->with_sass, "Print the disassembly of the kernels");
  sub->add_flag("--json", command->is_json, "Print JSON");
}

// A command of `moejit cache`, with the options that all of them have.
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
  add_cache_command(cache, action, "show",
                    "Show one kernel: what it is and what its key is made of",
                    "  moejit cache show 13a8b1de287e\n", &run_cache_show, show)
      .add_option("KEY", show->key, "Key, or a beginning that only one has")
      ->required();
  std::shared_ptr<CacheWhyCommand> why;
  CLI::App& why_app =
      add_cache_command(cache, action, "why", "Tell why kernels of a layer are not in the cache",
                        "  moejit cache why layer.json --target cuda:sm_90a\n"
                        "  moejit cache why 13a8b1de287e\n",
                        &run_cache_why, why);
  why_app.add_option("LAYER", why->what, "Layer description, or a key")->required();
  why_app.add_option("--target", why->target, kTargetHelp)->capture_default_str();
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
  CLI::App& gc_app = add_cache_command(
      cache, action, "gc", "Remove what was used longest ago beyond the limits, and leftovers",
      "  moejit cache gc\n  moejit cache gc --max-bytes 512M --max-files 1000\n", &run_cache_gc,
      gc);
  gc_app.add_option("--max-bytes", gc->max_bytes,
                    "Instead of MOEJIT_CACHE_MAX_BYTES: 512M, 4G, none");
  gc_app.add_option("--max-files", gc->max_files, "Instead of MOEJIT_CACHE_MAX_FILES");
  add_cache_command(cache, action, "stats", "Print sizes, limits, and what was counted so far",
                    "  moejit cache stats\n", &run_cache_stats, all);
  std::shared_ptr<CacheClearCommand> clear;
  add_cache_command(cache, action, "clear", "Remove every kernel", "  moejit cache clear --yes\n",
                    &run_cache_clear, clear)
      .add_flag("-y,--yes", clear->is_confirmed, "Do not ask");
}

void add_cache(CLI::App& app, Action& action) {
  CLI::App* cache = app.add_subcommand("cache", "Look at the kernel cache, and tidy it");
  cache->require_subcommand(1);
  cache->fallthrough();
  cache->footer("Examples:\n  moejit cache ls\n  moejit cache verify --cache-dir kernels\n");
  add_cache_looks(*cache, action);
  add_cache_upkeep(*cache, action);
}

// Hidden: a process that is started for one kernel, not by people.
void add_compile_worker(CLI::App& app, Action& action) {
  const auto command = add_command<CompileWorkerCommand>(
      app, action, "compile-worker", "Compile one kernel for another process",
      "  see MOEJIT_COMPILE_WORKER\n", run_compile_worker);
  CLI::App* sub = app.get_subcommand("compile-worker");
  sub->group("");
  sub->add_option("PARENT", command->parent, "Process that wants it")->required();
}

void add_env(CLI::App& app, Action& action) {
  const auto command =
      add_command<EnvCommand>(app, action, "env", "Print versions, paths, variables and GPUs",
                              "  moejit env\n  moejit env --json\n", run_env);
  app.get_subcommand("env")->add_flag("--json", command->is_json, "Print JSON");
}

// The subcommand that was named last on the line: its words are what may be misspelt.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* current = &app;
  while (!current->get_subcommands().empty()) current = current->get_subcommands().front();
  return *current;
}

std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    words.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

std::string command_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : command_name(*app.get_parent()) + " " + app.get_name();
}

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& where = innermost(app);
  std::string message = escape_for_message(error.what(), 400);
  std::string hint = command_name(where) + " --help";
  const std::vector<std::string> extras = app.remaining(true);
  // A misspelt command also makes "a subcommand is required"; the word itself tells more.
  if (!extras.empty() && (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                          dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)) {
    const bool wants_command = !where.get_subcommands([](const CLI::App*) { return true; }).empty();
    const std::string& extra = extras.front();
    message =
        fmt::format("unknown {} {}",
                    extra.starts_with('-') ? "option" : (wants_command ? "command" : "argument"),
                    quote_for_message(extra));
    const std::vector<std::string> words = known_words(where);
    const std::vector<std::string_view> views(words.begin(), words.end());
    const std::string_view nearest = nearest_name(extra, views);
    if (!nearest.empty()) hint = fmt::format("did you mean {}? See {}", nearest, hint);
  }
  return {Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint), ""};
}

// The path of the program is the machine's business and left out.
std::string command_line_of(int argc, const char* const* argv) {
  std::string line = "moejit";
  for (int i = 1; i < argc; ++i) line += " " + shell_word(argv[i]);
  return line;
}

Action print_action(std::string text) {
  return [text = std::move(text)](Terminal& terminal) -> Result<void> {
    terminal.print(text);
    return {};
  };
}

}  // namespace

Result<ParsedArguments> parse_arguments(int argc, const char* const* argv) {
  CLI::App app{"Generates, compiles and runs the fused kernels of a Mixture-of-Experts layer."};
  app.name("moejit");
  app.require_subcommand(1);
  app.footer("docs/cli.md describes every command and the exit statuses.");
  app.set_version_flag("--version", "moejit " MOEJIT_VERSION);
  ParsedArguments parsed;
  app.add_flag("-v,--verbose", parsed.is_verbose, "Errors with everything that is known");
  for (const auto& add : {add_layer, add_activation, add_plan, add_emit, add_build, add_run})
    add(app, parsed.action);
  add_bench(app, parsed.action, command_line_of(argc, argv));
  for (const auto& add : {add_inspect, add_cache, add_pack, add_env, add_compile_worker})
    add(app, parsed.action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    parsed.action = print_action(std::string(version.what()) + "\n");
  } catch (const CLI::Success&) {
    parsed.action = print_action(app.help());
  } catch (const CLI::ParseError& error) {
    return tl::make_unexpected(usage_error(app, error));
  }
  return parsed;
}

}  // namespace moejit::cli
