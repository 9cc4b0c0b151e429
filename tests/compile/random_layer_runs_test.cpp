// SPDX-License-Identifier: Apache-2.0
// Random layers give what the CPU reference gives, in the simulator and, where there is one, on a
// GPU: what `moejit run --check` compares, of every kernel.
//
// RANDOM_LAYERS=200 RANDOM_LAYERS_SEED=1 RANDOM_LAYERS_TARGET=cuda runs those of seeds 1 to 200,
// RANDOM_LAYERS_SEED=7 RANDOM_LAYERS_TARGET=sim:sm_120f the layer of seed 7 alone.

#include "runtime/check/check_plan.h"
#include "runtime/trial/devices.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/trial.h"
#include "tests/compile/random_layers.h"
#include "tests/support/matchers.h"
#include "tests/support/random_layer.h"
#include "tests/support/seeded_random.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::testing {
namespace {

using compiler::Plan;
using compiler::TensorRole;

// Tokens of the call: mostly what fills the layer, sometimes few or none.
int64_t tokens_of(const compiler::Layer& layer, uint64_t seed) {
  SeededRandom random(~seed);
  if (random.in_percent(60)) return layer.max_tokens;
  return random.between(0, layer.max_tokens);
}

Result<runtime::TensorMap> results_of(trial::Trial& session) {
  runtime::TensorMap results;
  for (const compiler::TensorPlan& tensor : session.plan().tensors) {
    if (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight) continue;
    if (tensor.name == "status") continue;
    MOEJIT_TRY_ASSIGN(runtime::HostTensor host, session.read(tensor));
    results.emplace(tensor.name, std::move(host));
  }
  return results;
}

Result<std::vector<check::TensorCheck>> run_and_check(const Plan& plan, uint64_t seed,
                                                      runtime::Engine& engine,
                                                      runtime::Device& device) {
  MOEJIT_TRY_ASSIGN(
      const runtime::TensorMap inputs,
      trial::load_layer_inputs(plan, {.tokens = tokens_of(*plan.layer, seed), .random = {seed}}));
  MOEJIT_TRY_ASSIGN(const auto session,
                    trial::Trial::create(plan, engine, device, trial::call_of(inputs)));
  std::vector<std::string_view> calls = {"update_weights", "forward"};
  if (has_backward(*plan.layer)) calls.emplace_back("backward");
  for (const std::string_view call : calls) MOEJIT_TRY(session->call(call));
  MOEJIT_TRY(session->status());  // a layer may have fewer rows than its routing needs
  MOEJIT_TRY_ASSIGN(const runtime::TensorMap results, results_of(*session));
  return check::check_plan(plan, calls, inputs, results);
}

struct RandomRun {
  uint64_t seed = 0;
  std::string json;
  Plan plan;
};

// Those of the seeds that the planner takes.
std::vector<RandomRun> plan_runs(const std::vector<uint64_t>& seeds, const compiler::Target& target,
                                 LayerSize size) {
  std::vector<RandomRun> runs;
  for (const uint64_t seed : seeds) {
    const std::string json = random_layer(seed, size);
    const auto plan = compiler::parse_layer(json, "layer").and_then([&](const auto& layer) {
      return compiler::plan_layer(layer, target, {.keep_intermediates = true});
    });
    if (plan)
      runs.push_back({seed, json, *plan});
    else
      fmt::print("refused: seed {}: {}\n", seed, to_string(plan.error()));
  }
  return runs;
}

// So that all cores compile while the first layers run.
void compile_ahead(const std::vector<RandomRun>& runs, runtime::Engine& engine) {
  std::vector<compiler::KernelSource> sources;
  for (const RandomRun& run : runs)
    for (const compiler::KernelPlan& kernel : run.plan.kernels)
      if (auto source = compiler::emit_kernel(kernel, run.plan.target))
        sources.push_back(std::move(*source));
  engine.prefetch(sources);
}

void expect_right(const RandomRun& run, runtime::Engine& engine, runtime::Device& device) {
  const std::string again = fmt::format("{}\nagain: RANDOM_LAYERS_TARGET={} RANDOM_LAYERS_SEED={}",
                                        run.json, to_string(run.plan.target), run.seed);
  const auto checks = run_and_check(run.plan, run.seed, engine, device);
  ASSERT_TRUE(succeeded(checks)) << again;
  for (const check::TensorCheck& check : *checks)
    EXPECT_TRUE(check.has_passed) << check.tensor << ": " << check.verdict << ", " << check.message
                                  << "\n"
                                  << again;
}

// In CI: `fixed` and `fresh` layers of "sim" or "cuda".
void run_random_layers(const std::string& kind, LayerSize size, int64_t fixed, int64_t fresh) {
  const RandomLayersOptions options = random_layers_options();
  if (options.is_long && !options.target.starts_with(kind))
    GTEST_SKIP() << "RANDOM_LAYERS_TARGET is \"" << options.target << "\"";
  const std::string target = options.is_long ? options.target : kind;
  const auto opened = trial::Devices::open_one(target, 1, "");
  if (!opened) GTEST_SKIP() << to_string(opened.error());
  const auto engine = runtime::Engine::create({.use_cache = false});
  ASSERT_TRUE(succeeded(engine));
  const std::vector<uint64_t> seeds = options.seeds(fixed, fresh);
  const std::vector<RandomRun> runs = plan_runs(seeds, (*opened)->device(0).target(), size);
  compile_ahead(runs, **engine);
  int64_t done = 0;
  for (const RandomRun& run : runs) {
    expect_right(run, **engine, (*opened)->device(0));
    if (++done % 10 != 0 || !options.is_long) continue;
    fmt::print("{} of {} layers on {}\n", done, runs.size(), target);
    std::fflush(stdout);
  }
  fmt::print("random layers on {}: {} of {} taken and run\n", target, runs.size(), seeds.size());
}

TEST(RandomLayerRuns, AgreeWithTheReferenceInTheSimulator) {
  run_random_layers("sim", LayerSize::kSmall, 1, 1);
}

TEST(RandomLayerRuns, AgreeWithTheReferenceOnAGpu) {
  run_random_layers("cuda", LayerSize::kMedium, 10, 5);
}

}  // namespace
}  // namespace moejit::testing
