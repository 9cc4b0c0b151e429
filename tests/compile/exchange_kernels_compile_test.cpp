// SPDX-License-Identifier: Apache-2.0
// The kernels of exchanges between ranks become cubins without spills, and are launched as they
// take it: their CTAs wait for peers, so that as many must fit on an SM as the host believes. Needs
// NVRTC, no GPU.

#include "tests/compile/layer_kernels.h"
#include "tests/support/exchange_plan.h"
#include "tests/support/matchers.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <ostream>

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::Exchange;
using compiler::ExchangeStep;

struct ExchangeCase {
  const char* name;
  Exchange exchange;
};
void PrintTo(const ExchangeCase& of, std::ostream* to) { *to << of.name; }

// Returns an exchange of DeepSeek-V3's layer.
Exchange deepseek_v3() {
  return {.ranks = 4,
          .experts = 256,
          .top_k = 8,
          .max_tokens = 4096,
          .columns = 7168,
          .epsilon = 1e-10f,
          .max_permuted_rows = 40960,
          .splits_alignment = 16,
          .keeps_rows = true};
}

std::vector<ExchangeCase> cases() {
  Exchange backward = deepseek_v3(), few_sms = deepseek_v3(), bf16 = deepseek_v3(),
           many_choices = deepseek_v3(), long_rows = deepseek_v3(), each_row = deepseek_v3();
  backward.has_dprobs = true;
  backward.moves_probs = backward.keeps_rows = false;
  few_sms.ranks = 2;
  few_sms.sms = 24;
  bf16.ranks = 8;
  bf16.columns = 2880;
  bf16.top_k = 4;
  bf16.format = DType::kBF16;
  many_choices.top_k = 32;
  many_choices.columns = 2048;
  many_choices.max_tokens = 128;
  long_rows.columns = 28672;
  long_rows.has_dprobs = true;
  each_row.sends_rows = true;
  return {{"DeepSeekV3", deepseek_v3()}, {"WithGradientsOfProbabilities", backward},
          {"FewSms", few_sms},           {"Bf16Rows", bf16},
          {"ManyChoices", many_choices}, {"LongRows", long_rows},
          {"EachRow", each_row}};
}

class ExchangeKernels : public ::testing::TestWithParam<ExchangeCase> {};

TEST_P(ExchangeKernels, CompileForAGpu) {
  std::vector<compiler::KernelSource> sources;
  for (const ExchangeStep step : {ExchangeStep::kRouteDispatchPermute,
                                  ExchangeStep::kDispatchPermute, ExchangeStep::kCombineRows}) {
    const auto plan = compiler::plan_exchange(step, GetParam().exchange, {});
    ASSERT_TRUE(succeeded(plan));
    for (const compiler::KernelPlan& kernel : plan->kernels) {
      auto source = compiler::emit_kernel(kernel, plan->target);
      ASSERT_TRUE(succeeded(source));
      source->text +=
          fmt::format("static_assert(Kernel::kCtasPerSm == {});\n", kernel.launch.ctas_per_sm);
      sources.push_back(with_launch_asserted(std::move(*source), kernel.launch));
    }
  }
  if (const auto identity = compiler::toolchain_identity(sources.front()); !identity)
    GTEST_SKIP() << to_string(identity.error());
  std::vector<std::string> complaints(sources.size());
  for_each_in_parallel(sources.size(),
                       [&](std::size_t i) { complaints[i] = compile(sources[i]).complaint; });
  for (std::size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(complaints[i], "") << sources[i].entry;
}

INSTANTIATE_TEST_SUITE_P(Compile, ExchangeKernels, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moejit::testing
