// SPDX-License-Identifier: Apache-2.0
// Adds the options that say what calls read, for all commands that make calls.
#include "cli/arguments/add_command.h"

#include <fmt/core.h>
#include <string>

namespace moejit::cli {
namespace {

void add_checkpoint_options(CLI::App& sub, checkpoint::CheckpointOptions& checkpoint) {
  using compiler::GateUpLayout;
  CLI::Option* weights =
      sub.add_option("--weights", checkpoint.shards,
                     "Hugging Face checkpoint: its folder, its index or its shards");
  CLI::Option* layer = sub.add_option("--layer", checkpoint.layer_number,
                                      "Number in the checkpoint of the layer to take")
                           ->check(CLI::NonNegativeNumber)
                           ->needs(weights);
  sub.add_option("--prefix", checkpoint.prefix,
                 "Instead of --layer: what stands before .experts in names: model.layers.3.mlp")
      ->needs(weights)
      ->excludes(layer);
  sub.add_option("--first-expert", checkpoint.first_expert,
                 "Number in the checkpoint of the first local expert")
      ->needs(weights)
      ->capture_default_str();
  sub.add_option_function<std::string>(
         "--gate-up-layout",
         [&checkpoint](const std::string& name) {
           checkpoint.gate_up_layout =
               name == "concat" ? GateUpLayout::kConcat : GateUpLayout::kInterleaved;
         },
         "How gate and up lie in fused tensors: concat or interleaved; default: by the family")
      ->check(CLI::IsMember({"concat", "interleaved"}))
      ->needs(weights);
}

}  // namespace

CLI::Option* add_tokens_option(CLI::App& sub, std::optional<int64_t>& tokens,
                               std::string_view usual) {
  return sub.add_option("--tokens", tokens, fmt::format("T of random data; default: {}", usual));
}

void add_seed_option(CLI::App& sub, uint64_t& seed) {
  sub.add_option("--seed", seed, "Of random data and of the simulator's fiber order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_random_options(CLI::App& sub, trial::InputOptions& inputs, std::string_view usual_tokens,
                        CLI::Option* given) {
  add_tokens_option(sub, inputs.tokens, usual_tokens)->excludes(given);
  add_seed_option(sub, inputs.random.seed);
  const auto set_routing = [&inputs](const std::string& name) {
    for (const auto routing : {trial::RandomRouting::kSkewed, trial::RandomRouting::kUniform})
      if (name == to_string(routing)) inputs.random.routing = routing;
  };
  sub.add_option_function<std::string>("--routing", set_routing,
                                       "Of random data: skewed, as popularity of experts falls, "
                                       "or uniform, all experts alike")
      ->check(CLI::IsMember({"skewed", "uniform"}))
      ->default_str("skewed")
      ->excludes(given);
}

void add_input_options(CLI::App& sub, trial::InputOptions& inputs) {
  CLI::Option* input =
      sub.add_option("--input", inputs.input_path,
                     "safetensors file with x, topk_ids, topk_probs, w1, w2; dy; of an "
                     "operation with all that it reads");
  add_random_options(sub, inputs, "128, at most max_tokens", input);
  add_checkpoint_options(sub, inputs.checkpoint);
}

}  // namespace moejit::cli
