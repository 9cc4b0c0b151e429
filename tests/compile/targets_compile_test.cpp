// SPDX-License-Identifier: Apache-2.0
// Operations on all targets but the usual one, which every_kernel_compiles_test has. No GPU of
// these targets was at hand: what is shown is that kernels compile and keep the limits.
#include "compiler/compiler.h"
#include "compiler/support/file.h"
#include "tests/compile/compiled_record.h"
#include "tests/compile/layer_kernels.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace moejit::testing {
namespace {

constexpr const char* kRecord = MOEJIT_SOURCE_DIR "/tests/compile/compiled_for_targets.txt";
constexpr const char* kOperations = MOEJIT_SOURCE_DIR "/docs/examples/operations";

struct Job {
  std::string name;  // "cuda:sm_80/ENTRY"
  compiler::KernelSource source;
  Digest key;
};

// Adds the kernel of an operation, unless the target lacks instructions for it.
void add(const compiler::OperationDescription& operation, const compiler::Target& target,
         std::vector<Job>& jobs) {
  const auto plan = compiler::plan_operation(operation, target);
  if (!plan) {
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported) << plan.error().message;
    EXPECT_NE(operation.name.find("grouped_gemm"), std::string::npos) << plan.error().message;
    return;
  }
  const compiler::KernelPlan& kernel = plan->kernels.front();
  EXPECT_LE(kernel.launch.shared_bytes, target.shared_memory_bytes) << operation.name;
  EXPECT_LE(kernel.launch.threads, target.threads_of_sm);
  auto source = compiler::emit_kernel(kernel, target);
  ASSERT_TRUE(succeeded(source));
  const auto key = compiler::kernel_key(*source);
  ASSERT_TRUE(succeeded(key));
  std::string name = fmt::format("{}/{}", to_string(target), source->entry);
  jobs.push_back(
      {std::move(name), with_launch_asserted(std::move(*source), kernel.launch), key->digest});
}

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  for (const auto& file : std::filesystem::directory_iterator(kOperations)) {
    const auto text = read_text_file(file.path().string());
    EXPECT_TRUE(succeeded(text));
    const auto operation = compiler::parse_operation(*text, file.path().filename().string());
    EXPECT_TRUE(succeeded(operation));
    for (const compiler::Architecture& known : compiler::architectures())
      if (known.target != compiler::Target{}) add(*operation, known.target, jobs);
  }
  return jobs;
}

// Compiles jobs on all processors. Registers are counted out for sm_90a, so a few bytes may be
// spilled elsewhere: on Blackwell 64 by one cast of weights, where integers convert FP8 124.
std::vector<int32_t> registers_of(const std::vector<Job>& jobs) {
  constexpr int32_t kMostSpilled = 64, kMostWithIntegers = 128;
  std::vector<int32_t> registers(jobs.size());
  for_each_in_parallel(jobs.size(), [&](std::size_t i) {
    const auto binary = test_engine().binary(jobs[i].source);
    ASSERT_TRUE(succeeded(binary)) << jobs[i].name;
    const compiler::ResourceUsage& usage = *(*binary)->usage;
    registers[i] = usage.registers;
    const bool converts = jobs[i].source.target.features.has_fp8_conversions;
    EXPECT_LE(usage.spill_store_bytes, converts ? kMostSpilled : kMostWithIntegers) << jobs[i].name;
    EXPECT_EQ(usage.static_shared_bytes, 0) << jobs[i].name;
  });
  return registers;
}

// Kernels that an earlier run compiled are not compiled again, but for one in `kChosen`.
TEST(Targets, OperationsCompileForAll) {
  constexpr uint32_t kChosen = 16;
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
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 2 && std::string_view(argv[1]) == "--update") {
    moejit::testing::update();
    return ::testing::Test::HasFailure() ? 1 : 0;
  }
  return RUN_ALL_TESTS();
}
