// SPDX-License-Identifier: Apache-2.0
// Operations and layers on all targets but the usual one, which every_kernel_compiles_test has. No
// GPU of these targets was at hand: what is shown is that kernels compile and keep the limits.
#include "tests/compile/compiled_record.h"
#include "tests/compile/layer_kernels.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/support/update_main.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string_view>
#include <vector>

namespace moejit::testing {
namespace {

constexpr const char* kRecord = MOEJIT_SOURCE_DIR "/tests/compile/compiled_for_targets.txt";
constexpr const char* kOperations = MOEJIT_SOURCE_DIR "/docs/examples/operations";
constexpr const char* kLayers = MOEJIT_SOURCE_DIR "/docs/examples/layers";

struct Job {
  std::string name;  // "cuda:sm_80/ENTRY"
  compiler::KernelSource source;
  Digest key;
};

using Jobs = std::map<std::string, Job>;  // by name

void add(const compiler::Plan& plan, Jobs& jobs) {
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    auto source = compiler::emit_kernel(kernel, plan.target);
    ASSERT_TRUE(succeeded(source));
    const auto key = compiler::kernel_key(*source);
    ASSERT_TRUE(succeeded(key));
    const std::string name = fmt::format("{}/{}", to_string(plan.target), source->entry);
    jobs[name] = {name, with_launch_asserted(std::move(*source), kernel.launch), key->digest};
  }
}

// Checks that a plan keeps the target's limits.
void expect_limits(const compiler::Plan& plan) {
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    EXPECT_LE(kernel.launch.shared_bytes, plan.target.shared_memory_bytes) << kernel.operation;
    EXPECT_LE(kernel.launch.threads, plan.target.threads_of_sm) << kernel.operation;
    EXPECT_LE(int64_t{kernel.launch.shared_bytes + 1024} * kernel.launch.ctas_per_sm,
              plan.target.shared_memory_of_sm)
        << plan.subject << ", " << kernel.operation;
  }
}

// Calls body(path, text) for each description of a folder.
template <typename Body>
void for_each_description(const char* folder, const Body& body) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const auto text = read_text_file(file.path().string());
    ASSERT_TRUE(succeeded(text));
    body(file.path(), *text);
  }
}

void add_operations(const compiler::Target& target, Jobs& jobs) {
  for_each_description(kOperations, [&](const auto& path, const std::string& text) {
    const auto operation = compiler::parse_operation(text, path.filename().string());
    ASSERT_TRUE(succeeded(operation));
    const auto plan = compiler::plan_operation(*operation, target);
    ASSERT_TRUE(succeeded(plan)) << path;
    expect_limits(*plan);
    add(*plan, jobs);
  });
}

// Adds a GEMM of so many rows that swapped tiles have the most, where the target has registers.
void add_most_swapped_rows(const compiler::Target& target, Jobs& jobs) {
  const auto operation = compiler::parse_operation(
      R"({"operation": "grouped_gemm", "local_experts": 32, "max_permuted_rows": 1024,
          "n": 2048, "k": 2048, "scales": "row_block"})",
      "most swapped rows");
  ASSERT_TRUE(succeeded(operation));
  const auto plan = compiler::plan_operation(*operation, target);
  ASSERT_TRUE(succeeded(plan));
  expect_limits(*plan);
  add(*plan, jobs);
}

// Adds layers of few kinds of kernels; the others are planned alone. Where GPUs have no bulk
// copies, ranks exchange tokens by NCCL alone.
void add_layers(const compiler::Target& target, Jobs& jobs) {
  constexpr std::array<std::string_view, 6> kCompiled = {
      "tiny",       "tiny-current",      "tiny-mxfp8",
      "tiny-mxfp4", "tiny-int4-weights", "tiny-nvfp4-weights"};
  for_each_description(kLayers, [&](const auto& path, const std::string& text) {
    const auto layer = compiler::parse_layer(text, path.filename().string());
    ASSERT_TRUE(succeeded(layer));
    const auto plan = compiler::plan_layer(*layer, target);
    const bool copies_to_ranks = layer->expert_parallel.ranks > 1 &&
                                 layer->expert_parallel.transport == compiler::Transport::kPeer;
    ASSERT_EQ(plan.has_value(), target.features.has_bulk_copies || !copies_to_ranks) << path;
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
      return;
    }
    expect_limits(*plan);
    if (std::ranges::count(kCompiled, path.stem().string()) > 0) add(*plan, jobs);
  });
}

std::vector<Job> all_jobs() {
  Jobs jobs;
  for (const compiler::Architecture& known : compiler::architectures()) {
    if (known.target == compiler::Target{}) continue;
    add_operations(known.target, jobs);
    add_most_swapped_rows(known.target, jobs);
    add_layers(known.target, jobs);
  }
  std::vector<Job> list;
  for (auto& [name, job] : jobs) list.push_back(std::move(job));
  return list;
}

// Compiles jobs on all processors. Registers are counted out for sm_90a, so a few bytes may be
// spilled elsewhere: on Blackwell 64 by one cast of weights, where integers convert FP8 168.
std::vector<int32_t> registers_of(const std::vector<Job>& jobs) {
  constexpr int32_t kMostSpilled = 64, kMostWithIntegers = 192;
  std::vector<int32_t> registers(jobs.size());
  for_each_in_parallel(jobs.size(), [&](std::size_t i) {
    const auto binary = test_engine().binary(jobs[i].source);
    ASSERT_TRUE(succeeded(binary)) << jobs[i].name;
    const compiler::ResourceUsage& usage = *(*binary)->usage;
    registers[i] = usage.registers;
    const bool converts = jobs[i].source.target.features.has_fp8_conversions;
    const bool multiplies = jobs[i].name.find("gemm") != std::string::npos;
    EXPECT_LE(usage.spill_store_bytes, multiplies ? 0
                                       : converts ? kMostSpilled
                                                  : kMostWithIntegers)
        << jobs[i].name;
    EXPECT_EQ(usage.static_shared_bytes, 0) << jobs[i].name;
  });
  return registers;
}

// Kernels that an earlier run compiled are not compiled again, but for one in `kChosen`.
TEST(Targets, OperationsAndLayersCompileForAll) {
  constexpr uint32_t kChosen = 32;
  std::vector<Job> jobs = all_jobs();
  ASSERT_GT(jobs.size(), 150u);
  if (const auto identity = toolchain_identity(jobs.front().source); !identity)
    GTEST_SKIP() << to_string(identity.error());
  const CompiledRecord record = CompiledRecord::read(kRecord);
  std::mt19937 random(std::random_device{}());
  std::erase_if(jobs, [&](const Job& job) {
    return record.registers(job.name, job.key) && random() % kChosen != 0;
  });
  const std::vector<int32_t> registers = registers_of(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto recorded = record.registers(jobs[i].name, jobs[i].key);
    EXPECT_EQ(registers[i], recorded.value_or(registers[i])) << jobs[i].name;
  }
}

// Compiles everything and writes the record anew, if all is well.
void update() {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<int32_t> registers = registers_of(jobs);
  if (::testing::Test::HasFailure()) return;
  CompiledRecord record;
  for (std::size_t i = 0; i < jobs.size(); ++i) record.add(jobs[i].name, jobs[i].key, registers[i]);
  record.write(kRecord);
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  return moejit::testing::run_tests_or_update(argc, argv, &moejit::testing::update);
}
