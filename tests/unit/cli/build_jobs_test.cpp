// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/build_jobs.h"

#include "compiler/support/file.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <string_view>

namespace moejit::cli {
namespace {

// Returns the alignments that kernels of all variants of a description route to.
std::set<std::string> alignments_of(std::string_view fields) {
  const testing::TempDir folder;
  const std::string path = folder / "layer.json";
  EXPECT_TRUE(testing::succeeded(
      write_file(path, fmt::format(R"({{"experts": 8, "top_k": 2, "hidden": 64, "intermediate": 64,
          "max_tokens": 16, {}}})",
                                   fields))));
  const auto jobs = collect_build_jobs({path}, "cuda:sm_90a", BuildVariants::kAll, nullptr);
  EXPECT_TRUE(testing::succeeded(jobs));
  constexpr std::string_view kConstant = "kSplitsAlignment = ";
  std::set<std::string> alignments;
  for (const BuildJob& job : *jobs) {
    const std::string& text = job.source.text;
    const size_t found = text.find(kConstant);
    if (found == std::string::npos) continue;
    const size_t begin = found + kConstant.size();
    alignments.insert(text.substr(begin, text.find(';', begin) - begin));
  }
  return alignments;
}

using Alignments = std::set<std::string>;

TEST(BuildJobs, HaveTheAlignmentOfEachVariantsPasses) {
  const std::string_view training = R"(, "passes": ["forward", "backward"])";
  for (const std::string_view passes : {std::string_view(), training})
    EXPECT_EQ(alignments_of(fmt::format(R"("recipe": "mxfp8"{})", passes)), (Alignments{"1", "32"}))
        << passes;
  EXPECT_EQ(alignments_of(R"("recipe": "mxfp8", "splits_alignment": 128)"), Alignments{"128"});
}

}  // namespace
}  // namespace moejit::cli
