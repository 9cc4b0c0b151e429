// SPDX-License-Identifier: Apache-2.0
// A case of `moejit bench --gemms` from its operands to its figures, so small that these mean
// nothing.
#include "runtime/check/sampled_gemm.h"
#include "runtime/reference/layouts.h"
#include "runtime/trial/measure_trial.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

namespace moejit::testing {
namespace {

using measure::GemmCase;
using trial::GemmTrial;

constexpr uint64_t kSeed = 3;

GemmCase small() {
  return {.name = "small",
          .groups = 3,
          .rows_per_group = 100,
          .is_ragged = true,
          .splits_alignment = 16,
          .n = 288,
          .k = 400,
          .sections = 2};
}

GemmCase small_gradient(compiler::GradientOutput output,
                        compiler::GradientScales scales = compiler::GradientScales::kTile) {
  return {.name = "small_gradient",
          .operation = measure::GemmOperation::kContractionGroupedGemm,
          .groups = 3,
          .is_ragged = true,
          .n = 208,
          .columns_per_group = 200,
          .rows = 144,
          .gradient_scales = scales,
          .output = output};
}

class BenchGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
  static runtime::Device& device() { return *test_device().device; }
  static std::unique_ptr<GemmTrial> launched(const GemmCase& gemm) {
    auto session = GemmTrial::create(gemm, *test_device().engine, device(), kSeed);
    EXPECT_TRUE(succeeded(session));
    if (!session) return nullptr;
    EXPECT_TRUE(succeeded((*session)->launch()));
    return std::move(*session);
  }
  static void expect_correct(GemmTrial& session) {
    const auto check = check::check_gemm(session, kSeed);
    ASSERT_TRUE(succeeded(check));
    EXPECT_TRUE(check->is_equal()) << check->message;
    EXPECT_GT(check->compared, 0);
  }
};

TEST_F(BenchGemm, ResultsAreThoseOfTheReference) {
  GemmCase gemm = small();
  expect_correct(*launched(gemm));
  gemm.scale_sharing_k = 2;
  expect_correct(*launched(gemm));
  expect_correct(*launched({.groups = 2, .rows_per_group = 70, .n = 512, .k = 256, .sections = 2}));
  // Few enough rows for swapped tiles.
  expect_correct(
      *launched({.groups = 2, .rows_per_group = 20, .splits_alignment = 16, .n = 256, .k = 256}));
}

TEST_F(BenchGemm, ResultsWithOtherScalesAreThoseOfTheReference) {
  using compiler::GemmScales;
  for (const GemmScales scales : {GemmScales::kTensor, GemmScales::kRowColumn, GemmScales::kNone}) {
    SCOPED_TRACE(to_string(scales));
    GemmCase gemm = small();
    gemm.scales = scales;
    expect_correct(*launched(gemm));
    gemm.accumulation = compiler::GemmAccumulation::kFast;
    if (scales != GemmScales::kNone) expect_correct(*launched(gemm));
    gemm.accumulation = compiler::GemmAccumulation::kFp32;
    gemm.rows_per_group = 20;  // swapped tiles
    expect_correct(*launched(gemm));
  }
}

TEST_F(BenchGemm, ResultsWithoutWgmmaAreThoseOfTheReference) {
  if (tested_target() != "sim") GTEST_SKIP() << "the target is simulated";
  const auto other =
      runtime::open_simulator({.target = compiler::parse_target("sim:sm_120f").value()});
  ASSERT_TRUE(succeeded(other));
  GemmCase tensor = small();
  tensor.scales = compiler::GemmScales::kTensor;
  const GemmCase gradient = small_gradient(compiler::GradientOutput::kF32);
  const GemmCase ends =
      small_gradient(compiler::GradientOutput::kF32, compiler::GradientScales::kTensor);
  for (const GemmCase& gemm : {small(), tensor, gradient, ends}) {
    const auto session = GemmTrial::create(gemm, test_engine(), **other, kSeed);
    ASSERT_TRUE(succeeded(session));
    ASSERT_TRUE(succeeded((*session)->launch()));
    expect_correct(**session);
  }
}

TEST_F(BenchGemm, ListsEveryKernelThatItNeeds) {
  GemmCase tensor = small();
  tensor.scales = compiler::GemmScales::kTensor;
  for (const GemmCase& gemm : {small(), tensor, small_gradient(compiler::GradientOutput::kF32)}) {
    const auto engine = make_test_engine();
    ASSERT_TRUE(succeeded(engine));
    const auto sources = GemmTrial::sources(gemm, device().target());
    ASSERT_TRUE(succeeded(sources));
    for (const compiler::KernelSource& source : *sources)
      ASSERT_TRUE(succeeded((*engine)->binary(source)));
    const int64_t compiled = (*engine)->counters().compiled;
    ASSERT_TRUE(succeeded(GemmTrial::create(gemm, **engine, device(), kSeed)));
    EXPECT_EQ((*engine)->counters().compiled, compiled);
  }
}

TEST_F(BenchGemm, GradientsAreThoseOfTheReference) {
  using compiler::GradientOutput;
  for (const GradientOutput output : {GradientOutput::kBf16, GradientOutput::kBf16Add,
                                      GradientOutput::kF32, GradientOutput::kF32Add}) {
    SCOPED_TRACE(to_string(output));
    expect_correct(*launched(small_gradient(output)));
  }
  expect_correct(
      *launched(small_gradient(GradientOutput::kF32Add, compiler::GradientScales::kRow)));
}

TEST_F(BenchGemm, FindsAWrongGradientAndOneThatWasNotAddedTo) {
  using compiler::GradientOutput;
  const std::unique_ptr<GemmTrial> session = launched(small_gradient(GradientOutput::kF32Add));
  ASSERT_TRUE(succeeded(session->launch()));
  const auto added_twice = check::check_gemm(*session, kSeed);
  ASSERT_TRUE(succeeded(added_twice));
  EXPECT_FALSE(added_twice->is_equal());

  ASSERT_TRUE(succeeded(session->reset_result()));
  const auto never_added = check::check_gemm(*session, kSeed);
  ASSERT_TRUE(succeeded(never_added));
  EXPECT_FALSE(never_added->is_equal());

  ASSERT_TRUE(succeeded(session->launch()));
  expect_correct(*session);
}

TEST_F(BenchGemm, PadColumnsOfGradientsAreZeros) {
  const std::unique_ptr<GemmTrial> session =
      launched(small_gradient(compiler::GradientOutput::kF32));
  const measure::GemmGroups& groups = session->groups();
  const auto blocks = session->trial().tensors().read("a");
  ASSERT_TRUE(succeeded(blocks));
  const std::vector<uint8_t> a =
      reference::from_column_blocks(runtime::copy_elements<uint8_t>(*blocks), groups.rows());
  for (int64_t row = 0; row < session->gemm().rows; ++row) {
    for (size_t group = 0; group < groups.counts.size(); ++group) {
      const auto first = a.begin() + row * groups.rows() + groups.offs[group];
      const auto end = a.begin() + row * groups.rows() + groups.offs[group + 1];
      const auto pad = first + groups.counts[group];
      EXPECT_EQ(std::count(pad, end, 0), end - pad);
      EXPECT_LT(std::count(first, pad, 0), (pad - first) / 4);
    }
  }
}

TEST_F(BenchGemm, FindsAWrongGroupAndAPadRowThatIsNotZero) {
  GemmCase gemm = small();
  gemm.is_ragged = false;  // 100 rows and 12 pad rows
  const std::unique_ptr<GemmTrial> session = launched(gemm);
  auto* const d = static_cast<uint16_t*>(session->trial().tensors().address_of("d"));
  const auto write = [&](int64_t row, int64_t rows, uint16_t bits) {
    const std::vector<uint16_t> values(static_cast<size_t>(rows * small().n), bits);
    EXPECT_TRUE(succeeded(device().synchronize(nullptr)));
    EXPECT_TRUE(succeeded(device().copy_to_device(d + row * small().n, values.data(),
                                                  static_cast<int64_t>(2 * values.size()))));
  };
  const measure::GemmGroups& groups = session->groups();
  write(groups.offs[1] + groups.counts[1], 1, 0x3f80);
  const auto pad_row = check::check_gemm(*session, kSeed);
  ASSERT_TRUE(succeeded(pad_row));
  EXPECT_FALSE(pad_row->is_equal());

  ASSERT_TRUE(succeeded(session->launch()));
  expect_correct(*session);
  write(groups.offs[2], groups.counts[2], 0x4000);
  const auto group = check::check_gemm(*session, kSeed);
  ASSERT_TRUE(succeeded(group));
  EXPECT_FALSE(group->is_equal());
}

TEST_F(BenchGemm, OperandsAreQuantizedRandomNumbers) {
  const std::unique_ptr<GemmTrial> session = launched(small());
  const auto b = session->trial().tensors().read("b");
  ASSERT_TRUE(succeeded(b));
  EXPECT_GT(std::set(b->bytes.begin(), b->bytes.end()).size(), 200u);  // of the 254 numbers of e4m3
  const auto scales = session->read<float>("a_scale_inv", 0, 4);
  ASSERT_TRUE(succeeded(scales));
  for (const float scale : *scales) {
    // The largest of 16 or 128 values lies between 1.1 and 4.9.
    EXPECT_GE(scale, 0x1p-8f);
    EXPECT_LE(scale, 0x1p-6f);
  }
}

TEST_F(BenchGemm, HotRunsCountTheirClock) {
  const std::unique_ptr<GemmTrial> session = launched(small());
  auto probe = measure::ClockProbe::create(*test_device().engine, device());
  ASSERT_TRUE(succeeded(probe));
  const auto run = measure_hot(session->trial(), *probe, 0.002);
  ASSERT_TRUE(succeeded(run));
  EXPECT_GE(run->front().seconds, 0.002);
  const auto elapsed = session->trial().tensors().read("elapsed");
  ASSERT_TRUE(succeeded(elapsed));
  const auto clock = runtime::elements<measure::ClockSample>(*elapsed).front();
  EXPECT_GT(clock.nanoseconds, 0u);
  EXPECT_DOUBLE_EQ(run->front().megahertz, clock.megahertz());
  expect_correct(*session);
}

// A kernel that learns to spare reads must not spare these.
TEST_F(BenchGemm, SweepsReadEveryByte) {
  auto sweep = measure::CacheSweep::create(*test_device().engine, device(), 100'000);
  ASSERT_TRUE(succeeded(sweep));
  EXPECT_TRUE(succeeded(sweep->run()));
}

// Counters of a GPU's memory would tell more, but need rights. Caches alone are many times faster.
TEST_F(BenchGemm, ReadsAloneRunAtAboutTheRateOfACopy) {
  if (test_device().is_simulator()) GTEST_SKIP() << "the simulator has no bandwidth";
  const auto copy = measure::measure_copy_bytes_per_second(device(), 5);
  ASSERT_TRUE(succeeded(copy));
  const auto read = measure::measure_read_bytes_per_second(*test_device().engine, device(), 5);
  ASSERT_TRUE(succeeded(read));
  EXPECT_GT(*read, 0.8 * *copy);
  EXPECT_LT(*read, 1.3 * *copy);
}

TEST_F(BenchGemm, CoolRunsHaveTimeAndClock) {
  if (test_device().is_simulator()) GTEST_SKIP() << "the simulator has no caches";
  const std::unique_ptr<GemmTrial> session = launched(small());
  auto probe = measure::ClockProbe::create(*test_device().engine, device());
  ASSERT_TRUE(succeeded(probe));
  const auto run = measure_cool(session->trial(), *test_device().engine, *probe, 3);
  ASSERT_TRUE(succeeded(run));
  EXPECT_GT(run->front().microseconds, 0.0);
  EXPECT_GT(run->front().megahertz, 200.0);
}

}  // namespace
}  // namespace moejit::testing
