// SPDX-License-Identifier: Apache-2.0
// Adds the commands that look at a layer or at its kernels.
#include "cli/arguments/add_command.h"
#include "cli/commands/layer_commands.h"

namespace moejit::cli {

void add_layer(CLI::App& app, Action& action) {
  const auto command = add_command<LayerCommand>(
      app, action, "layer", "Check a layer description, or make one from a model's config.json",
      "  moejit layer layer.json\n"
      "  moejit layer --from-hf config.json --expert-parallel 8 --output layer.json\n"
      "  moejit layer --from-hf config.json --for torch --max-tokens 4096 --output layers.json\n",
      run_layer);
  CLI::App* sub = app.get_subcommand("layer");
  sub->add_option("LAYER", command->file, "Description to check; printed with all fields");
  sub->add_option("--from-hf", command->from_hugging_face,
                  "config.json of a model on Hugging Face, or the model's folder");
  sub->add_option("--for", command->made_for,
                  "torch: list all layers that the model asks for with moejit.torch, for moejit "
                  "build")
      ->check(CLI::IsMember({"torch"}));
  sub->add_flag("--router", command->router,
                "Describe a layer that chooses experts of logits, as the model does")
      ->needs("--from-hf")
      ->excludes("--for");
  sub->add_flag("--shared", command->shared, "Describe a layer with the model's shared experts")
      ->needs("--from-hf")
      ->excludes("--for");
  sub->add_option("--recipe", command->recipe, "Number formats of a model's layer")
      ->capture_default_str();
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
      "Show the derivatives of an activation or a score, its code, and where it is not finite",
      "  moejit activation clamped_swiglu\n"
      "  moejit activation 'tanh(gate) * up'\n"
      "  moejit activation 'sqrt(relu(logit))' --check\n",
      run_activation);
  CLI::App& sub = *app.get_subcommand("activation");
  sub.add_option(
         "FORMULA", command->formula,
         "Formula over gate and up, one over logit for a router's scores, or a preset's name")
      ->required();
  sub.add_flag("--check", command->check,
               "Compile it with LLVM, and compare value and derivatives at bf16 numbers");
  sub.add_flag("--ir", command->ir, "Show LLVM's optimized IR in fp32, and its operations");
  sub.add_flag("--json", command->is_json, "Print what --check and --ir found as JSON");
}

void add_pass_option(CLI::App& sub, std::string& pass) {
  sub.add_option("--pass", pass,
                 "forward, or training: forward and backward; default: as the description says")
      ->check(CLI::IsMember({"forward", "training"}));
}

void add_plan_options(CLI::App& sub, PlanArguments& arguments) {
  sub.add_option("--target", arguments.target, kTargetHelp)->capture_default_str();
  add_pass_option(sub, arguments.pass);
  add_tuning_options(sub, arguments.tuning);
}

void add_plan(CLI::App& app, Action& action) {
  const auto command = add_command<PlanCommand>(
      app, action, "plan", "Show kernels, tensors, memory and launches of a layer",
      "  moejit plan layer.json\n"
      "  moejit plan layer.json --pass training --explain\n"
      "  moejit plan layer.json --target sim --json\n",
      run_plan);
  CLI::App* sub = app.get_subcommand("plan");
  sub->add_option("LAYER", command->layers, "Layer descriptions")->required();
  add_plan_options(*sub, command->plan);
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
  sub->add_option("LAYER", command->layers, "Layer descriptions")->required();
  add_plan_options(*sub, command->plan);
  sub->add_option("--operation", command->operation, "Only this kernel of the plan");
  sub->add_option("--output-dir", command->output_dir,
                  "One file OPERATION.cu per kernel there; of several layers below LAYER/")
      ->check(&check_name);
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
  sub->add_option("FILE", command->files, "Layer descriptions, cubins or cache entries")
      ->required();
  add_plan_options(*sub, command->plan);
  add_cache_options(*sub, command->cache);
  sub->add_flag("--sass", command->with_sass, "Print the disassembly of the kernels");
  sub->add_flag("--json", command->is_json, "Print JSON");
}

}  // namespace moejit::cli
