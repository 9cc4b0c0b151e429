// SPDX-License-Identifier: Apache-2.0
//
// The exchange of kernels/ranks with one line changed that breaks its protocol: most seeds must
// report it, by the ranks, kernels and lines that take part.

#include "tests/sim/support/exchange.h"

#include <ostream>
#include <regex>
#include <utility>

namespace moejit::runtime {
namespace {

struct BrokenExchange {
  std::string name;
  KernelChange change;
  std::string wanted;  // in the report, a regular expression
  std::string kernel;  // that the report names, with the line of `snippet`
  std::string snippet;
  std::string other_kernel;  // that it names too, with the line of `other_snippet`; may be empty
  std::string other_snippet;
  std::vector<int32_t> tokens;
};
std::ostream& operator<<(std::ostream& out, const BrokenExchange& broken) {
  return out << broken.name;
}

const char* const kTake = "load_peer_data(stage + slot)";
const char* const kSum = "load_peer_data(home)";
const char* const kUnordered = "no release and acquire of a flag orders the two";

class BrokenRanks : public testing::TestWithParam<BrokenExchange> {};

TEST_P(BrokenRanks, AreReportedWithRankKernelAndLine) {
  const BrokenExchange& broken = GetParam();
  const std::vector<KernelChange> changes{broken.change};
  const auto place = [&](const std::string& kernel, const std::string& snippet) {
    const int32_t line = line_of(kernel, changes, snippet);
    EXPECT_GT(line, 0) << snippet;
    return kernel + ".cu:" + std::to_string(line);
  };
  int caught = 0;
  constexpr int kSeeds = 30;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto result =
        run_exchange({.ranks = 3, .seed = seed, .tokens = broken.tokens, .changes = changes});
    if (result.has_value()) continue;
    ++caught;
    const std::string& message = result.error().message;
    ASSERT_EQ(result.error().code, ErrorCode::kSimulatorFault) << message;
    EXPECT_TRUE(std::regex_search(message, std::regex(broken.wanted))) << message;
    const std::regex whom("rank [0-2], kernel " + broken.kernel + ", CTA [0-9]+");
    EXPECT_TRUE(std::regex_search(message, whom)) << message;
    for (const auto& [kernel, snippet] : {std::pair(broken.kernel, broken.snippet),
                                          std::pair(broken.other_kernel, broken.other_snippet)}) {
      if (snippet.empty()) continue;
      EXPECT_NE(message.find(place(kernel, snippet)), std::string::npos) << message;
    }
  }
  EXPECT_GE(caught, kSeeds * 8 / 10);
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, BrokenRanks,
    testing::Values(
        BrokenExchange{"wait_missing",
                       {"receive", "seen = wait_system(flag, epoch, deadline)", "seen = epoch"},
                       "never written|older epoch|orders the two",
                       "receive",
                       kTake,
                       "",
                       "",
                       {}},
        BrokenExchange{"sum_without_wait",
                       {"combine", "seen = wait_system(flag, epoch, deadline)", "seen = epoch"},
                       "never written|older epoch|orders the two",
                       "combine",
                       kSum,
                       "",
                       "",
                       {}},
        BrokenExchange{"fence_missing",
                       {"push", "      fence_system();\n", ""},
                       kUnordered,
                       "receive",
                       kTake,
                       "push",
                       "store(slot,",
                       {}},
        BrokenExchange{
            "barrier_before_the_flag_missing",
            {"push", "    sync_cta();\n    if (t < params.ranks) {", "    if (t < params.ranks) {"},
            "never written|older epoch|orders the two",
            "receive",
            kTake,
            "",
            "",
            {}},
        BrokenExchange{"flag_before_data",
                       {"push", "const int32_t token = chunk * kChunk + t;",
                        "const int32_t token = chunk * kChunk + t;\n"
                        "    if (t < params.ranks) store_release_system("
                        "global(params.data_flags[t]) + (params.rank * chunks + chunk), epoch);"},
                       "never written|older epoch|orders the two",
                       "receive",
                       kTake,
                       "",
                       "",
                       {}},
        BrokenExchange{
            "release_missing",
            {"send_home", "store_release_system(global(params.home_flags[home]) + params.rank",
             "store(global(params.home_flags[home]) + params.rank"},
            kUnordered,
            "combine",
            kSum,
            "send_home",
            "store_bulk(",
            {}},
        BrokenExchange{"acquire_missing",
                       {"combine", "seen = wait_system(flag, epoch, deadline)",
                        "seen = [&] { for (;;) if (load(flag) >= epoch) return load(flag); }()"},
                       kUnordered,
                       "combine",
                       "load(flag)",
                       "send_home",
                       "store_release_system(",
                       {}},
        BrokenExchange{"source_of_a_bulk_store_reused_early",
                       {"send_home", "        wait_bulk_stores<0>();\n", ""},
                       "source of the tensor store|exits while this tensor store may still read",
                       "send_home",
                       "store_bulk(",
                       "",
                       "",
                       {100, 70, 40}},
        BrokenExchange{"wait_of_a_bulk_store_missing",
                       {"send_home", "wait_bulk_stores<0>", "wait_bulk_stores_read<0>"},
                       "never written|older epoch|orders the two",
                       "combine",
                       kSum,
                       "",
                       "",
                       {}},
        BrokenExchange{"bulk_store_not_committed",
                       {"send_home", "        commit_bulk_stores();\n", ""},
                       "exits while this tensor store may still read|never written|older epoch",
                       "send_home|kernel combine",
                       "",
                       "",
                       "",
                       {}},
        BrokenExchange{"epoch_not_advanced",
                       {"combine", "store(global(params.epochs), epoch)",
                        "store(global(params.epochs), epoch - 1)"},
                       "older epoch|orders the two",
                       "(receive|combine|push|send_home)",
                       "",
                       "",
                       "",
                       {}},
        BrokenExchange{"wrong_slot",
                       {"push", "(params.rank * params.tokens_capacity + token)",
                        "(to * params.tokens_capacity + token)"},
                       "never written|orders the two",
                       "(receive|push)",
                       "",
                       "",
                       "",
                       {}},
        BrokenExchange{"stage_freed_before_it_is_read",
                       {"send_home",
                        "load(global(params.received) + "
                        "(home * params.tokens_capacity + token))",
                        "load_peer_data(global<const Bytes16>(params.stage[params.rank]) + "
                        "(home * params.tokens_capacity + token))"},
                       "older epoch",
                       "send_home",
                       "Bytes16 row =",
                       "push",
                       "store(slot,",
                       {}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moejit::runtime
