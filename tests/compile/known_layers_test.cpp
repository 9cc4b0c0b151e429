// SPDX-License-Identifier: Apache-2.0
// Kernels of layers that once did not compile, or that no other test of compilers has. Needs NVRTC,
// no GPU.

#include "tests/compile/layer_kernels.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

struct KnownLayer {
  const char* json;
  const char* kernel;  // the entry's name holds this; of the others nothing is new
};

// Four steps of the contraction, as one round of an unrolled loop: 92 bytes were spilled where gate
// and up are stored too, that is in training and where intermediates are kept.
constexpr KnownLayer kLayers[] = {
    {R"({"experts": 8, "top_k": 2, "hidden": 512, "intermediate": 512, "max_tokens": 1024,
         "passes": ["forward", "backward"]})",
     "gemm_fc1_activation_quantize"},
    {R"({"experts": 8, "top_k": 2, "hidden": 400, "intermediate": 720, "max_tokens": 1024,
         "activation": "clamped_swiglu"})",
     "gemm_fc1_activation_quantize"},
    // Two tensor maps of a result, one of which a tile takes.
    {R"({"experts": 8, "top_k": 2, "hidden": 512, "intermediate": 400, "max_tokens": 1024,
         "gate_up_layout": "separate", "passes": ["forward", "backward"]})",
     "gemm_fc1_wgrad"},
    {R"({"experts": 8, "top_k": 2, "hidden": 512, "intermediate": 400, "max_tokens": 1024,
         "gate_up_layout": "separate", "passes": ["forward", "backward"]})",
     "quantize_w1"},
    // Two tensor maps of B. Rows of it in tiles of 128 rows, in swapped ones, and in swapped ones
    // that activate; and its contraction.
    {R"({"experts": 8, "top_k": 2, "hidden": 512, "intermediate": 400, "max_tokens": 1024,
         "gate_up_layout": "separate", "recipe": "bf16", "passes": ["forward", "backward"]})",
     "gemm_fc1"},
    {R"({"experts": 8, "top_k": 2, "hidden": 512, "intermediate": 400, "max_tokens": 64,
         "gate_up_layout": "separate", "recipe": "bf16", "passes": ["forward", "backward"]})",
     "gemm_fc1_"},
    {R"({"experts": 8, "top_k": 2, "hidden": 512, "intermediate": 400, "max_tokens": 64,
         "gate_up_layout": "separate", "recipe": "bf16"})",
     "gemm_fc1_activation"},
};

TEST(KnownLayers, Compile) {
  std::vector<compiler::KernelSource> sources;
  for (const KnownLayer& layer : kLayers) {
    auto kernels = layer_kernels(layer.json);
    ASSERT_TRUE(succeeded(kernels)) << layer.json;
    const std::size_t before = sources.size();
    for (auto& [entry, source] : *kernels)
      if (entry.find(layer.kernel) != std::string::npos) sources.push_back(std::move(source));
    EXPECT_GT(sources.size(), before) << layer.kernel << " is in no plan of " << layer.json;
  }
  if (const auto identity = toolchain_identity(sources.front()); !identity)
    GTEST_SKIP() << to_string(identity.error());
  std::vector<std::string> complaints(sources.size());
  for_each_in_parallel(sources.size(),
                       [&](std::size_t i) { complaints[i] = compile(sources[i]).complaint; });
  for (const std::string& complaint : complaints) EXPECT_EQ(complaint, "");
}

}  // namespace
}  // namespace moejit::testing
