// SPDX-License-Identifier: Apache-2.0
// That cache entries of the kernels of all layers in docs/examples/layers have no more beside their
// machine code than runtime/kernel_entry.h says, and still tell every field of their keys.
#include "cache/entry.h"
#include "compiler/compiler.h"
#include "compiler/kernel_source.h"
#include "compiler/support/file.h"
#include "runtime/kernel_entry.h"
#include "tests/support/matchers.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {
namespace {

namespace fs = std::filesystem;
using Sources = std::map<std::string, compiler::KernelSource>;  // by their text

// As long as those of real compilers, and the same on all machines.
std::vector<std::string> compiler_of(const compiler::Target& target) {
  if (target.kind == compiler::TargetKind::kSim)
    return {"compiler=c++ (Ubuntu 13.3.0-6ubuntu2~24.04.1) 13.3.0"};
  return {"compiler=nvrtc 13.0", "compiler_build_id=" + std::string(40, '1'),
          "builtins_build_id=" + std::string(40, '2')};
}

void add_kernels(const compiler::Layer& layer, const compiler::Target& target, Sources& sources) {
  for (const bool keeps : {false, true}) {
    const auto plan = compiler::plan_layer(layer, target, {.keep_intermediates = keeps});
    if (!plan) continue;  // what the target does not run
    for (const compiler::KernelPlan& kernel : plan->kernels) {
      auto source = compiler::emit_kernel(kernel, target);
      ASSERT_TRUE(succeeded(source));
      sources.emplace(source->text, std::move(*source));
    }
  }
}

// Forward and training, with kernels fused and apart.
void add_variants(compiler::Layer layer, const compiler::Target& target, Sources& sources) {
  layer.recompute = compiler::Recompute::kNone;
  for (unsigned choices = 0; choices < 16; ++choices) {
    const auto is_chosen = [&](unsigned bit) { return ((choices >> bit) & 1U) != 0; };
    layer.passes = {compiler::Pass::kForward};
    if (is_chosen(0)) layer.passes.push_back(compiler::Pass::kBackward);
    layer.fuse_activation = is_chosen(1);
    layer.fuse_transpose = is_chosen(2);
    layer.fuse_activation_transpose = is_chosen(3);
    add_kernels(layer, target, sources);
  }
}

Sources sources_for(const compiler::Target& target) {
  Sources sources;
  for (const auto& file :
       fs::directory_iterator(fs::path(MOEJIT_SOURCE_DIR) / "docs/examples/layers")) {
    const auto bytes = read_file(file.path().string()).value();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    add_variants(compiler::parse_layer(text, file.path().string()).value(), target, sources);
  }
  return sources;
}

class KernelMetadataTest : public ::testing::TestWithParam<const char*> {
 protected:
  const compiler::Target target_ = compiler::parse_target(GetParam()).value();
  const Sources sources_ = sources_for(target_);

  compiler::KernelKey key_of(const compiler::KernelSource& source) const {
    const auto fields = compiler::toolchain_identity_with(source, compiler_of(target_));
    return compiler::kernel_key(source, fields.value().value());
  }
  // With the largest numbers that kernels may have.
  std::string metadata_of(const compiler::KernelSource& source) const {
    compiler::KernelBinary binary{.entry = source.entry, .target = target_, .bytes = {}};
    if (target_.kind == compiler::TargetKind::kCuda)
      binary.usage = compiler::ResourceUsage{.registers = 255,
                                             .static_shared_bytes = 49152,
                                             .stack_bytes = 524288,
                                             .spill_store_bytes = 524288,
                                             .spill_load_bytes = 524288,
                                             .code_bytes = 1048576};
    return runtime::kernel_metadata(binary, key_of(source));
  }
};

TEST_P(KernelMetadataTest, IsSmall) {
  EXPECT_GE(sources_.size(), 100u);
  constexpr std::size_t kPayload = 1;  // with the most padding before it
  for (const auto& [text, source] : sources_) {
    const std::size_t bytes = cache::entry_file_bytes(metadata_of(source).size(), kPayload);
    EXPECT_LE(bytes - kPayload, runtime::kMostEntryOverheadBytes) << source.entry;
  }
}

TEST_P(KernelMetadataTest, TellsEveryFieldOfTheKey) {
  for (const auto& [text, source] : sources_) {
    const std::vector<HashedField> wanted = key_of(source).fields;
    const std::vector<HashedField> told = runtime::key_fields_of(metadata_of(source));
    ASSERT_EQ(told.size(), wanted.size()) << source.entry;
    for (std::size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(told[i].name, wanted[i].name);
      EXPECT_EQ(told[i].value, runtime::stored_value(wanted[i].name, wanted[i].value));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfAllTargets, KernelMetadataTest, ::testing::Values("cuda:sm_90a", "sim"));

}  // namespace
}  // namespace moejit::testing
