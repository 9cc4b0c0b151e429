// SPDX-License-Identifier: Apache-2.0
// Adds the commands that make kernels and run them.
#include "cli/arguments/add_command.h"
#include "cli/commands/kernel_commands.h"
#include "compiler/recipe.h"
#include "runtime/trial/open_engine.h"

#include <string>
#include <vector>

namespace moejit::cli {
namespace {

constexpr const char* kRunTargetHelp = "auto (the GPU where there is one, else sim), cuda or sim";

}  // namespace

void add_cache_options(CLI::App& sub, trial::CacheOptions& cache) {
  sub.add_option("--cache-dir", cache.dir, "Folder of the kernel cache (see docs/environment.md)");
  sub.add_flag("--no-cache", cache.is_disabled, "Neither read nor write a cache on disk");
  sub.add_flag("--frozen", cache.is_frozen,
               "Compile nothing: a kernel not in the cache is an error");
  sub.add_option("--packs", cache.packs, "Packs to take kernels from, separated by ':'")
      ->delimiter(':')
      ->allow_extra_args(false)
      ->excludes("--no-cache");
  sub.add_option("--pack-keys", cache.pack_keys,
                 "Key ring: file or folder of public keys; one of them must have signed each pack");
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
         "Short for --target cuda:ARCH, as sm_90a")
      ->excludes(target);
  add_cache_options(*sub, command->cache);
  add_tuning_options(*sub, command->tuning);
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
  sub->add_flag("-q,--quiet", command->is_quiet,
                "Print a line for each layer instead of one for each kernel");
  sub->add_flag("--json", command->is_json, "Print JSON");
}

void add_run(CLI::App& app, Action& action) {
  const auto command = add_command<RunCommand>(
      app, action, "run", "Run a layer or an operation on given or random tokens",
      "  moejit run layer.json --check\n"
      "  moejit run operation.json --tokens 64 --check\n"
      "  moejit run layer.json --pass backward --check\n"
      "  moejit run layer.json --target sim --input in.safetensors --output out.safetensors\n"
      "  moejit run layer.json --call backward_data --check\n"
      "  moejit run layer.json --ranks 2 --check\n"
      "  moejit run layer.json --weights FOLDER --layer 3\n"
      "  moejit run layer.json --weights model-*.safetensors --prefix model.layers.3.mlp\n",
      run_run);
  CLI::App* sub = app.get_subcommand("run");
  sub->add_option("LAYER", command->layer, "Description of a layer or of an operation")->required();
  sub->add_option("--target", command->target, kRunTargetHelp)->capture_default_str();
  sub->add_option(
         "--ranks", command->ranks,
         "Run all ranks of a layer with expert_parallel, a GPU or a simulated one for each")
      ->check(CLI::Range(1, 8));
  CLI::Option* pass =
      sub->add_option("--pass", command->pass, "forward, or backward: that and then the gradients")
          ->check(CLI::IsMember({"forward", "backward"}))
          ->capture_default_str();
  sub->add_option("--call", command->call,
                  "A call of the plan, as backward_data or update_weights; calls that it needs run "
                  "first")
      ->excludes(pass)
      ->check([](const std::string& name) { return name.empty() ? "the name is empty" : ""; });
  add_cache_options(*sub, command->cache);
  add_tuning_options(*sub, command->tuning);
  add_input_options(*sub, command->inputs);
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
      app, action, "bench",
      "Time each kernel of a layer, or an operation, or grouped GEMMs, on the GPU",
      "  moejit bench layer.json\n"
      "  moejit bench operation.json\n"
      "  moejit bench layer.json --tokens 4096 --repeat 50 --json\n"
      "  moejit bench layer.json --pass training\n"
      "  moejit bench layer.json --ranks 2 --routing uniform\n"
      "  moejit bench --gemms gemms.json --case dsv3_fc1 --case dsv3_fc2\n",
      run_bench);
  command->command_line = command_line;
  CLI::App* sub = app.get_subcommand("bench");
  sub->add_option("LAYER", command->layer, "Description of a layer or of an operation");
  CLI::Option* gemms =
      sub->add_option("--gemms", command->gemms, "File of GEMM cases (docs/cli.md)");
  sub->add_option("--case", command->cases, "Only the case of this name; may be repeated")
      ->needs(gemms);
  sub->add_option("--target", command->target, "auto or cuda")->capture_default_str();
  add_cache_options(*sub, command->cache);
  add_tuning_options(*sub, command->tuning);
  sub->add_option("--pass", command->pass, "forward, or training: forward and backward")
      ->check(CLI::IsMember({"forward", "training"}))
      ->excludes(gemms)
      ->capture_default_str();
  add_random_options(*sub, command->inputs, "max_tokens", gemms);
  sub->add_option("--ranks", command->ranks, "Time all ranks of a layer with expert_parallel")
      ->excludes(gemms);
  sub->add_option("--repeat", command->repeat, "Cool launches, of which the median is reported")
      ->capture_default_str();
  sub->add_option("--hot-seconds", command->hot_seconds,
                  "How long each kernel is launched back to back, at least")
      ->capture_default_str();
  sub->add_option("--report", command->report, "Page in HTML to write, with drawings")
      ->check(&check_name)
      ->excludes(gemms);
  sub->add_flag("--json", command->is_json, "Print JSON");
}

void add_selftest(CLI::App& app, Action& action, const std::string& command_line) {
  const auto command = add_command<SelftestCommand>(
      app, action, "selftest",
      "Ask a GPU how it adds, check layers of all recipes, and time grouped GEMMs",
      "  moejit selftest\n"
      "  moejit selftest --report selftest.json\n"
      "  moejit selftest --target sim:sm_120f --recipe nvfp4\n",
      run_selftest);
  command->command_line = command_line;
  CLI::App* sub = app.get_subcommand("selftest");
  sub->add_option("--target", command->target, kTargetHelp)->capture_default_str();
  add_cache_options(*sub, command->cache);
  std::vector<std::string> recipes;
  for (const compiler::Recipe& recipe : compiler::kRecipes)
    if (recipe.has_kernels) recipes.emplace_back(recipe.name);
  sub->add_option("--recipe", command->recipes, "Only the layer of this recipe; may be repeated")
      ->check(CLI::IsMember(recipes));
  sub->add_flag("--no-bench", command->skips_bench, "Time nothing");
  sub->add_option("--report", command->report, "JSON to write, for the people of moejit")
      ->check(&check_name);
  sub->add_flag("--json", command->is_json, "Print the same JSON");
}

}  // namespace moejit::cli
