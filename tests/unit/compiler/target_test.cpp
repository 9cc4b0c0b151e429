// SPDX-License-Identifier: Apache-2.0
#include "compiler/target.h"

#include "compiler/compiler.h"
#include "compiler/support/file.h"
#include "templates/embedded_templates.h"
#include "tests/support/matchers.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <set>

namespace moejit::compiler {
namespace {

using ::moejit::testing::succeeded;

TEST(Target, NamesAreReadBack) {
  std::set<std::string> names;
  for (const Architecture& known : architectures()) {
    EXPECT_EQ(known.name, "cuda:" + known.target.arch);
    EXPECT_TRUE(names.insert(known.name).second) << known.name;
    const auto parsed = parse_target(known.name);
    ASSERT_TRUE(succeeded(parsed));
    EXPECT_EQ(*parsed, known.target);
  }
  EXPECT_EQ(parse_target("cuda").value(), Target{});
  EXPECT_EQ(to_string(parse_target("sim").value()), "sim");
  EXPECT_EQ(names.size(), 8u);
}

TEST(Target, OfTheSimulatorHasTheLimitsOfItsArchitecture) {
  for (const Architecture& known : architectures()) {
    if (known.target.features.has_wgmma) continue;
    const std::string name = "sim:" + known.target.arch;
    const Target simulated = parse_target(name).value();
    Target of_gpu = known.target;
    of_gpu.kind = TargetKind::kSim;
    EXPECT_EQ(simulated, of_gpu);
    EXPECT_EQ(to_string(simulated), name);
    EXPECT_FALSE(runs_on(simulated, known.capabilities.front()));
    EXPECT_EQ(header_overlays(simulated).back(), "moejit_sim");
  }
}

TEST(Target, ForTestsHasHoppersGpusAndFewerInstructions) {
  for (const char* name : {"cuda:sm_90a-mma", "cuda:sm_90a-cp-async"}) {
    const Target target = parse_target(name).value();
    EXPECT_EQ(nvrtc_arch(target), "sm_90a");
    EXPECT_TRUE(runs_on(target, {9, 0}));
    EXPECT_FALSE(target.features.has_wgmma);
    EXPECT_EQ(to_string(target), name);
    EXPECT_EQ(target.mma, MmaAddition{});
  }
  EXPECT_FALSE(parse_target("cuda:sm_90a-cp-async")->features.has_bulk_copies);
}

TEST(Target, BeforeHopperAddsEightProducts) {
  const MmaAddition eight{.products = 8, .fraction = 24};
  for (const Architecture& known : architectures())
    EXPECT_EQ(known.target.mma, known.target.features.has_bulk_copies ? MmaAddition{} : eight)
        << known.name;
}

TEST(Target, AnUnknownNameIsToldTheKnownOnes) {
  for (const char* name : {"", "cuda:", "sm_90a", "cuda:sm_90", "cuda:sm_90A", "sim:sm_90a"}) {
    const auto parsed = parse_target(name);
    ASSERT_FALSE(parsed) << name;
    for (const Architecture& known : architectures())
      EXPECT_NE(parsed.error().message.find(known.name), std::string::npos);
  }
}

TEST(Target, IsTheOneThatIsMadeForAGpu) {
  struct Case {
    ComputeCapability capability;
    std::string_view name;
  };
  for (const auto& [capability, name] :
       {Case{{8, 0}, "cuda:sm_80"}, Case{{9, 0}, "cuda:sm_90a"}, Case{{10, 3}, "cuda:sm_103a"},
        Case{{12, 1}, "cuda:sm_121a"}}) {
    const Architecture* const found = find_architecture(capability);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->name, name);
    EXPECT_TRUE(runs_on(found->target, capability));
  }
  for (const ComputeCapability unknown : {ComputeCapability{7, 5}, {8, 7}, {9, 1}, {11, 0}})
    EXPECT_EQ(find_architecture(unknown), nullptr);
}

TEST(Target, OfAFamilyRunsOnAllItsGpus) {
  const Target family = parse_target("cuda:sm_120f").value(),
               own = parse_target("cuda:sm_121a").value();
  EXPECT_TRUE(runs_on(family, {12, 0}));
  EXPECT_TRUE(runs_on(family, {12, 1}));
  EXPECT_FALSE(runs_on(own, {12, 0}));
  EXPECT_FALSE(runs_on(Target{}, {10, 0}));
  EXPECT_FALSE(runs_on(parse_target("sim").value(), {9, 0}));
}

TEST(Target, OverlaysAreFoldersOfHeaders) {
  for (const Architecture& known : architectures()) {
    for (const std::string_view folder : header_overlays(known.target)) {
      const std::string prefix = fmt::format("{}/ptx/", folder);
      bool is_there = false;
      for (const templates::EmbeddedFile& file : templates::embedded_files())
        is_there = is_there || file.include_name.starts_with(prefix);
      EXPECT_TRUE(is_there) << prefix;
    }
  }
}

TEST(Target, IsInTheDocumentation) {
  const std::string page = read_text_file(MOEJIT_SOURCE_DIR "/docs/targets.md").value();
  for (const Architecture& known : architectures()) {
    std::string capabilities;
    for (const ComputeCapability& each : known.capabilities)
      capabilities +=
          fmt::format("{}{}.{}", capabilities.empty() ? "" : ", ", each.major, each.minor);
    const auto begin =
        page.find(fmt::format("| `{}` | {} | {} |", known.name, known.gpus, capabilities));
    ASSERT_NE(begin, std::string::npos) << known.name;
    const std::string row = page.substr(begin, page.find('\n', begin) - begin);
    EXPECT_TRUE(row.ends_with(fmt::format("| {} |", known.evidence))) << row;
  }
}

// L2 is asked for bursts of rows by an instruction of Hopper.
TEST(Target, WithoutBulkCopiesNoRowsComeInBursts) {
  const auto layer = parse_layer(
      R"({"name": "wide", "experts": 8, "local_experts": 8, "top_k": 8, "hidden": 2048,
          "intermediate": 256, "activation": "swiglu", "dtype": "bf16", "recipe": "bf16",
          "splits_alignment": 64, "max_tokens": 8192})",
      "wide");
  ASSERT_TRUE(succeeded(layer));
  const auto bursts = [&](const char* name) {
    const Plan plan = plan_layer(*layer, parse_target(name).value()).value();
    int count = 0;
    for (const KernelPlan& kernel : plan.kernels)
      if (const auto* const chain = std::get_if<RowChainSpec>(&kernel.spec))
        count += chain->rows_per_burst > 0 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(bursts("cuda"), 1);
  EXPECT_EQ(bursts("cuda:sm_89"), 0);
}

TEST(Target, WithoutItsInstructionsAKernelIsRefused) {
  const auto layer = parse_layer(
      read_text_file(MOEJIT_SOURCE_DIR "/docs/examples/layers/tiny-ep2.json").value(), "tiny-ep2");
  ASSERT_TRUE(succeeded(layer));
  const auto plan = plan_layer(*layer, parse_target("cuda:sm_80").value());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(plan.error().message.find("cuda:sm_80"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().hint.find("cuda:sm_90a, cuda:sm_100f"), std::string::npos)
      << plan.error().hint;
}

}  // namespace
}  // namespace moejit::compiler
