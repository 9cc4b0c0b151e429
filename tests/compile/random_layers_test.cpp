// SPDX-License-Identifier: Apache-2.0
// Random layers become cubins: whatever the planner takes has to build. Needs NVRTC, no GPU.
//
// In CI every layer of a few seeds is planned and emitted, and some kernels of it are compiled.
// RANDOM_LAYERS=1000 RANDOM_LAYERS_SEED=1 compiles all kernels of the layers of seeds 1 to 1000 on
// all cores; RANDOM_LAYERS_SEED=7 alone those of seed 7.

#include "tests/compile/random_layers.h"

#include "compiler/support/digest.h"
#include "tests/compile/layer_kernels.h"
#include "tests/support/matchers.h"
#include "tests/support/random_layer.h"
#include "tests/support/seeded_random.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <mutex>
#include <set>

namespace moejit::testing {
namespace {

// A layer that is neither taken nor refused with a sentence about the description is a failure.
bool is_refusal(const Error& error) {
  return exit_code_of(error.code) == 2 && !error.message.empty();
}

// Compiles layers and counts what came of them. Any number of threads may call add().
class LayerCompiler {
 public:
  // At most `most_kernels` kernels of each layer are compiled, which the seed chooses.
  LayerCompiler(int64_t layers, std::size_t most_kernels)
      : layers_(layers), most_kernels_(most_kernels) {}

  void add(uint64_t seed) {
    const std::string json = random_layer(seed, LayerSize::kAny);
    const auto kernels = layer_kernels(json);
    if (!kernels) {
      const std::lock_guard lock(mutex_);
      if (is_refusal(kernels.error()))
        refusals_.push_back(fmt::format("seed {}: {}", seed, to_string(kernels.error())));
      else
        fail(seed, json, to_string(kernels.error()));
    } else {
      for (const compiler::KernelSource& source : claim(seed, *kernels))
        judge(seed, json, source, compile(source));
    }
    tell_progress();
  }

  void finish() const {
    fmt::print("random layers: {} of {} taken, {} refused; {} kernels compiled, {} failures\n",
               layers_ - std::ssize(refusals_), layers_, refusals_.size(), claimed_.size(),
               failures_);
    fmt::print("slowest: {:.1f} s, {}\n", slowest_seconds_, slowest_);
    for (const std::string& refusal : refusals_) fmt::print("refused: {}\n", refusal);
    EXPECT_LE(std::ssize(refusals_) * 10, std::max<int64_t>(layers_, 30)) << "more than a tenth";
  }

 private:
  // Those of a layer that nobody compiles yet.
  std::vector<compiler::KernelSource> claim(uint64_t seed, const LayerKernels& kernels) {
    std::vector<compiler::KernelSource> sources;
    for (const auto& [entry, source] : kernels) sources.push_back(source);
    SeededRandom random(~seed);
    while (sources.size() > most_kernels_)
      sources.erase(sources.begin() + random.between(0, std::ssize(sources) - 1));
    const std::lock_guard lock(mutex_);
    std::erase_if(sources, [&](const compiler::KernelSource& source) {
      return !claimed_.insert(source.text).second;
    });
    return sources;
  }

  void judge(uint64_t seed, const std::string& json, const compiler::KernelSource& source,
             const CompileOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    if (!outcome.complaint.empty()) fail(seed, json, outcome.complaint);
    if (outcome.cpu_seconds <= slowest_seconds_) return;
    slowest_seconds_ = outcome.cpu_seconds;
    slowest_ = fmt::format("seed {}, {}", seed, source.entry);
  }

  void fail(uint64_t seed, const std::string& json, const std::string& what) {
    ++failures_;
    ADD_FAILURE() << what << "\n" << json << "\nagain: RANDOM_LAYERS_SEED=" << seed;
  }

  void tell_progress() {
    const std::lock_guard lock(mutex_);
    if (++done_ % 20 != 0) return;
    fmt::print("{} of {} layers, {} kernels, {} failures\n", done_, layers_, claimed_.size(),
               failures_);
    std::fflush(stdout);
  }

  int64_t layers_;
  std::size_t most_kernels_;
  std::mutex mutex_;
  std::set<std::string> claimed_;
  std::vector<std::string> refusals_;
  int64_t done_ = 0;
  int64_t failures_ = 0;
  double slowest_seconds_ = 0;  // of CPU time
  std::string slowest_;
};

TEST(RandomLayers, ArePlannedOrRefusedWithASentence) {
  constexpr int64_t kDrawnLayers = 400;
  int64_t refused = 0;
  for (uint64_t seed = 1; seed <= kDrawnLayers; ++seed) {
    const std::string json = random_layer(seed, LayerSize::kAny);
    const auto kernels = layer_kernels(json);
    if (kernels) continue;
    ++refused;
    EXPECT_TRUE(is_refusal(kernels.error())) << to_string(kernels.error()) << "\n"
                                             << json << "\nagain: RANDOM_LAYERS_SEED=" << seed;
  }
  EXPECT_LE(refused * 10, kDrawnLayers);
}

// The generator promises the same bytes everywhere: of a few seeds in each size.
TEST(RandomLayers, AreTheSameEverywhere) {
  std::string all;
  for (const LayerSize size : {LayerSize::kAny, LayerSize::kMedium, LayerSize::kSmall})
    for (uint64_t seed = 1; seed <= 100; ++seed) all += random_layer(seed, size) + "\n";
  EXPECT_EQ(sha256(all).hex(), "d50b0cfcda97c2e000f1dce90f556d0992a9ff271f2b38fc870119cafd2ff3d0");
}

TEST(RandomLayers, Compile) {
  const RandomLayersOptions options = random_layers_options();
  if (!options.target.empty()) GTEST_SKIP() << "RANDOM_LAYERS_TARGET asks for runs";
  const compiler::KernelSource some = {.entry = "k", .text = "", .target = {}};
  if (const auto identity = toolchain_identity(some); !identity)
    GTEST_SKIP() << to_string(identity.error());
  constexpr std::size_t kMostInCi = 2;
  const std::vector<uint64_t> seeds = options.seeds(/*fixed=*/6, /*fresh=*/3);
  LayerCompiler compiler(std::ssize(seeds), options.is_long ? SIZE_MAX : kMostInCi);
  for_each_in_parallel(seeds.size(), [&](std::size_t i) { compiler.add(seeds[i]); });
  compiler.finish();
}

}  // namespace
}  // namespace moejit::testing
