// SPDX-License-Identifier: Apache-2.0
// Trains a model of two MoE blocks with the recipe bf16 and with others, and compares the losses.
// All begin with the same weights and take the same tokens.
//   train [--target cuda|sim] [--steps N] [--tokens N] [--hidden N] [--intermediate N]
//         [--limit PERCENT] [--losses FILE] [RECIPE...]
// Fails where a loss did not fall, or differs from bf16's by more than PERCENT in the mean of the
// last fifth of the steps. FILE gets the losses of all steps as JSON. Recipes run at the same time,
// each on a thread of its own.
//
// The loss is the cross entropy, as of language models (task.h). Adam with fp32 weights runs on the
// host.
#include "docs/examples/train/moe_block.h"
#include "docs/examples/train/task.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <string>

using namespace moejit;
using train::Batch;
using train::BlockSizes;
using train::Loss;
using train::MoeBlock;
using train::Task;

namespace {

struct Run {
  std::string target = "cuda", losses_file;
  BlockSizes sizes{.tokens = 2048, .hidden = 256, .intermediate = 256, .experts = 8, .top_k = 2};
  int64_t steps = 500;
  float rate = 1e-3f;
  double limit = 0.25;  // of the mean deviation, in percent
  std::vector<std::string> recipes{"fp8_flow",    "fp8_blockwise", "fp8_current",
                                   "fp8_delayed", "fp8_rowwise",   "mxfp8"};
};

using Losses = std::vector<double>;  // of each step

void add(std::vector<float>& sum, const std::vector<float>& values) {
  std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
}

// Returns the losses of the logits that a linear head makes of h + MoE(h) with h = x + MoE(x).
Result<Losses> train_with(std::string_view recipe, const Run& run, const Task& task,
                          runtime::Device& device, runtime::Engine& engine) {
  MOEJIT_TRY_ASSIGN(const auto first, MoeBlock::create(run.sizes, recipe, 10, device, engine));
  MOEJIT_TRY_ASSIGN(const auto second, MoeBlock::create(run.sizes, recipe, 20, device, engine));
  train::Parameter head(static_cast<int64_t>(train::kLabels) * run.sizes.hidden,
                        1.0 / std::sqrt(static_cast<double>(run.sizes.hidden)), 30);
  Losses losses;
  for (int64_t step = 0; step < run.steps; ++step) {
    const Batch batch = task.batch(step);
    std::vector<float> h = batch.x;
    MOEJIT_TRY_ASSIGN(const std::vector<float> first_y, first->forward(h));
    add(h, first_y);
    std::vector<float> output = h;
    MOEJIT_TRY_ASSIGN(const std::vector<float> second_y, second->forward(h));
    add(output, second_y);

    const Loss loss = train::loss_of(output, head.values(), batch.labels);
    losses.push_back(loss.value);

    std::vector<float> gradient = loss.drows;
    MOEJIT_TRY_ASSIGN(const std::vector<float> dh, second->backward(gradient));
    add(gradient, dh);
    MOEJIT_TRY(first->backward(gradient));
    // Falls to nothing, as in real runs: what is left at the end is what was learnt.
    const float rate = run.rate * (1.0f - static_cast<float>(step) / static_cast<float>(run.steps));
    head.update(loss.dweights, rate);
    MOEJIT_TRY(second->update(rate));
    MOEJIT_TRY(first->update(rate));
  }
  return losses;
}

// Returns the losses of bf16 and then of each recipe of the run.
Result<std::vector<Losses>> train_all(const Run& run, runtime::Device& device) {
  MOEJIT_TRY_ASSIGN(const auto engine, runtime::Engine::create());
  const Task task(run.sizes);
  std::vector<std::future<Result<Losses>>> running;
  const auto start = [&](std::string_view recipe) {
    running.push_back(std::async(std::launch::async, [&, recipe] {
      return train_with(recipe, run, task, device, *engine);
    }));
  };
  start("bf16");
  for (const std::string& recipe : run.recipes) start(recipe);
  std::vector<Losses> all;
  for (auto& losses : running) {
    MOEJIT_TRY_ASSIGN(all.emplace_back(), losses.get());
  }
  return all;
}

double mean(const std::vector<double>& values, size_t first) {
  double sum = 0.0;
  for (size_t i = first; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - first);
}

// Prints the losses of some steps, a column for each recipe.
void print_steps(const Run& run, const std::vector<Losses>& all) {
  std::printf("%6s %13s", "step", "bf16");
  for (const std::string& recipe : run.recipes) std::printf(" %13s", recipe.c_str());
  const size_t steps = all[0].size(), stride = std::max<size_t>(1, steps / 10);
  for (size_t i = 0; i < steps; ++i) {
    if (i % stride != 0 && i + 1 != steps) continue;
    std::printf("\n%6zu", i);
    for (const Losses& losses : all) std::printf(" %13.5f", losses[i]);
  }
  std::printf("\n");
}

// Prints how far a recipe ended from bf16. Returns whether both fell and stayed together.
bool compare(const std::string& recipe, const Run& run, const Losses& bf16, const Losses& losses) {
  const size_t last = bf16.size() - std::max<size_t>(1, bf16.size() / 5);
  std::vector<double> deviations;
  for (size_t i = 0; i < bf16.size(); ++i)
    deviations.push_back(100.0 * std::fabs(losses[i] - bf16[i]) / bf16[i]);
  const double of_bf16 = mean(bf16, last), of_recipe = mean(losses, last),
               deviation = mean(deviations, last);
  std::printf("last %zu steps: bf16 %.5f, %s %.5f, %+.3f%%; single steps: mean deviation %.3f%%\n",
              bf16.size() - last, of_bf16, recipe.c_str(), of_recipe,
              100.0 * (of_recipe - of_bf16) / of_bf16, deviation);
  const bool has_fallen = of_bf16 < bf16[0] && of_recipe < losses[0];
  if (!has_fallen) std::fprintf(stderr, "%s: a loss did not fall\n", recipe.c_str());
  if (!(deviation <= run.limit))
    std::fprintf(stderr, "%s: differs from bf16 by more than %.3g%%\n", recipe.c_str(), run.limit);
  return has_fallen && deviation <= run.limit;
}

// Writes the losses of all steps. Returns whether the file took them.
bool write_losses(const Run& run, const std::string& device, const std::vector<Losses>& all) {
  nlohmann::ordered_json file{{"device", device},
                              {"tokens", run.sizes.tokens},
                              {"hidden", run.sizes.hidden},
                              {"intermediate", run.sizes.intermediate},
                              {"experts", run.sizes.experts},
                              {"top_k", run.sizes.top_k}};
  file["losses"]["bf16"] = all[0];
  for (size_t i = 0; i < run.recipes.size(); ++i) file["losses"][run.recipes[i]] = all[i + 1];
  std::ofstream stream(run.losses_file);
  stream << file.dump() << "\n";
  stream.close();
  if (!stream) std::fprintf(stderr, "%s: cannot be written\n", run.losses_file.c_str());
  return !stream.fail();
}

// Trains with all recipes and prints what came out. Returns whether all is as it should be.
Result<bool> run_all(const Run& run) {
  MOEJIT_TRY_ASSIGN(const auto device,
                    run.target == "sim" ? runtime::open_simulator() : runtime::open_cuda_device());
  MOEJIT_TRY_ASSIGN(const std::vector<Losses> all, train_all(run, *device));
  std::printf("%s, %lld tokens a step, hidden %lld, intermediate %lld, %lld experts, top %lld\n",
              device->name().c_str(), static_cast<long long>(run.sizes.tokens),
              static_cast<long long>(run.sizes.hidden),
              static_cast<long long>(run.sizes.intermediate),
              static_cast<long long>(run.sizes.experts), static_cast<long long>(run.sizes.top_k));
  print_steps(run, all);
  bool is_good = run.losses_file.empty() || write_losses(run, device->name(), all);
  for (size_t i = 0; i < run.recipes.size(); ++i)
    is_good &= compare(run.recipes[i], run, all[0], all[i + 1]);
  return is_good;
}

}  // namespace

int main(int argc, char** argv) {
  Run run;
  CLI::App app("Trains two MoE blocks with several recipes and compares their losses with bf16's");
  app.add_option("--target", run.target)->check(CLI::IsMember({"cuda", "sim"}));
  app.add_option("--steps", run.steps)->check(CLI::PositiveNumber);
  app.add_option("--tokens", run.sizes.tokens)->check(CLI::PositiveNumber);
  app.add_option("--hidden", run.sizes.hidden)->check(CLI::PositiveNumber);
  app.add_option("--intermediate", run.sizes.intermediate)->check(CLI::PositiveNumber);
  app.add_option("--limit", run.limit, "the largest mean deviation, in percent");
  app.add_option("--losses", run.losses_file, "the JSON file for the losses of all steps");
  app.add_option("recipes", run.recipes, "beside bf16");
  CLI11_PARSE(app, argc, argv);
  const auto is_good = run_all(run);
  if (!is_good) {
    std::fprintf(stderr, "%s\n", to_string(is_good.error()).c_str());
    return exit_code_of(is_good.error().code);
  }
  return *is_good ? 0 : 1;
}
