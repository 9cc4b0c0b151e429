// SPDX-License-Identifier: Apache-2.0
// Every kernel of several layers becomes a cubin, without spills and within its register budget.
// Needs NVRTC, no GPU. compiled_kernels.txt has what the pinned NVRTC made of each; after a change
// of kernels, `every_kernel_compiles_test --update` writes it anew.

#include "compiler/compiler.h"
#include "compiler/kernel_source.h"
#include "compiler/launch.h"
#include "tests/compile/compiled_record.h"
#include "tests/compile/layer_kernels.h"
#include "tests/compile/planned_kernels.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/support/update_main.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::testing {
namespace {

using compiler::KernelBinary;
using Binary = std::shared_ptr<const KernelBinary>;

constexpr const char* kRecord = MOEJIT_SOURCE_DIR "/tests/compile/compiled_kernels.txt";

uint32_t seed_of_run() {
  const char* const text = std::getenv("COMPILE_SEED");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? std::random_device{}() : static_cast<uint32_t>(std::atoll(text));
}

// Whether a run compiles a kernel again that the record has: one in twelve, others with each seed.
bool is_chosen(const Digest& key, uint32_t seed) {
  if (std::getenv("COMPILE_ALL") != nullptr) return true;  // NOLINT(concurrency-mt-unsafe)
  return std::hash<std::string>{}(fmt::format("{} {}", key.hex(), seed)) % 12 == 0;
}

// Most registers of a thread, of the 65536 that an SM has: rows and tiles need loads in flight on
// at least 512 threads, and rows need them from more where they take few each; the GEMM is one CTA
// of 384 whose warps trade registers among themselves. A transpose, or a cast by columns, has 64 in
// flight on 512 threads, and a gated gradient's tile is on as many; a transpose that counts is on
// 256, and a block that is cast by rows and by columns on 384. A cast of bf16 has half of that in
// flight, on 1024 threads, and so has the sum of a token's rows, four at a time; a list of more
// than eight rows takes registers too.
int32_t register_budget(const compiler::KernelSpec& spec) {
  if (std::holds_alternative<compiler::GroupedGemmSpec>(spec)) return 168;
  if (std::holds_alternative<compiler::ContractionGroupedGemmSpec>(spec)) return 168;
  if (const auto* transpose = std::get_if<compiler::TransposeSpec>(&spec))
    return transpose->counts_flushed ? 255 : 128;
  if (std::holds_alternative<compiler::ColumnCastSpec>(spec)) return 128;
  if (std::holds_alternative<compiler::GroupColumnsSpec>(spec)) return 128;
  if (std::holds_alternative<compiler::GatedGradientSpec>(spec)) return 128;
  if (std::holds_alternative<compiler::RouterSpec>(spec) ||
      std::holds_alternative<compiler::RouterBackwardSpec>(spec)) {
    const compiler::LaunchShape shape = compiler::launch_shape(spec);
    return std::min(65536 / (shape.threads * shape.ctas_per_sm), 255);
  }
  if (const auto* block = std::get_if<compiler::BlockCastSpec>(&spec))
    return block->casts_rows && block->casts_columns ? 168 : 128;
  if (const auto* cast = std::get_if<compiler::TwoLevelCastSpec>(&spec)) {
    if (!cast->casts_rows || !cast->casts_columns) return cast->casts_columns ? 128 : 64;
    return cast->has_tiles ? 255 : 168;
  }
  if (const auto* cast = std::get_if<compiler::MultiCastTransposeSpec>(&spec))
    return cast->input == compiler::DType::kF32 ? 128 : 64;
  if (const auto* rows = std::get_if<compiler::RowChainSpec>(&spec))
    return rows->load == compiler::LoadStage::kCombinedRows && rows->top_k <= 8 ? 64 : 80;
  return std::holds_alternative<compiler::TileChainSpec>(spec) ? 128 : 96;
}

void expect_within_budget(const compiler::KernelSpec& spec, const KernelBinary& binary) {
  ASSERT_TRUE(binary.usage.has_value());
  const compiler::ResourceUsage& usage = *binary.usage;
  EXPECT_GT(usage.registers, 0);
  EXPECT_LE(usage.registers, register_budget(spec));
  EXPECT_EQ(usage.spill_store_bytes, 0);
  EXPECT_EQ(usage.spill_load_bytes, 0);
  EXPECT_EQ(usage.stack_bytes, 0);
  EXPECT_EQ(usage.static_shared_bytes, 0);
  EXPECT_GT(usage.code_bytes, 0);
}

// A kernel to compile, its key, and the registers that the record has for that key.
struct Job {
  const PlannedKernel* kernel;
  Digest key;
  std::optional<int32_t> recorded;
};

std::vector<Job> make_jobs(const std::map<std::string, PlannedKernel>& kernels,
                           const CompiledRecord& record) {
  std::vector<Job> jobs;
  for (const auto& [entry, kernel] : kernels) {
    const auto key = compiler::kernel_key(kernel.source);
    EXPECT_TRUE(succeeded(key)) << entry;
    if (key) jobs.push_back({&kernel, key->digest, record.registers(entry, key->digest)});
  }
  return jobs;
}

// Compiles kernels on all processors and checks each. Results are in the order of the jobs.
std::vector<Result<Binary>> compile_within_budget(const std::vector<Job>& jobs) {
  std::vector<Result<Binary>> results(jobs.size());
  for_each_in_parallel(jobs.size(), [&](std::size_t i) {
    results[i] = test_engine().binary(jobs[i].kernel->source);
  });
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(jobs[i].kernel->source.entry);
    EXPECT_TRUE(succeeded(results[i]));
    if (results[i]) expect_within_budget(jobs[i].kernel->spec, **results[i]);
  }
  return results;
}

// Kernels that an earlier run compiled are not compiled again, but for a few: which ones, the seed
// says. COMPILE_ALL=1 compiles all of them, COMPILE_SEED=7 those of a seed.
TEST(EveryKernel, CompilesWithoutSpillsWithinItsRegisters) {
  const auto all = planned_kernels();
  ASSERT_FALSE(all.empty());
  const auto identity = toolchain_identity(all.begin()->second.source);
  if (!identity) GTEST_SKIP() << to_string(identity.error());

  std::vector<Job> jobs = make_jobs(all, CompiledRecord::read(kRecord));
  for (const Job& job : jobs) {
    EXPECT_LE(job.recorded.value_or(0), register_budget(job.kernel->spec))
        << job.kernel->source.entry;
  }
  const uint32_t seed = seed_of_run();
  SCOPED_TRACE(fmt::format("COMPILE_SEED={}", seed));
  std::erase_if(jobs, [&](const Job& job) { return job.recorded && !is_chosen(job.key, seed); });
  fmt::print("{} kernels: {} compiled now (COMPILE_SEED={}), {} of them not in {}\n", all.size(),
             jobs.size(), seed,
             std::ranges::count_if(jobs, [](const Job& job) { return !job.recorded; }), kRecord);

  const auto results = compile_within_budget(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!results[i] || !jobs[i].recorded) continue;
    EXPECT_EQ((*results[i])->usage->registers, *jobs[i].recorded) << jobs[i].kernel->source.entry;
  }
}

// Compiles everything and writes the record anew, if all is well.
void update() {
  const auto all = planned_kernels();
  const std::vector<Job> jobs = make_jobs(all, {});
  const auto results = compile_within_budget(jobs);
  if (::testing::Test::HasFailure()) return;
  CompiledRecord record;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    record.add(jobs[i].kernel->source.entry, jobs[i].key, (*results[i])->usage->registers);
  record.write(kRecord);
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  return moejit::testing::run_tests_or_update(argc, argv, &moejit::testing::update);
}
