// SPDX-License-Identifier: Apache-2.0
// Kernels that are there already are served without opening NVRTC. Children of this process make
// them, so that the process itself has never had NVRTC in its memory.
#include "cache/pack_writer.h"
#include "compiler/kernel_source.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "compiler/support/file.h"
#include "runtime/engine.h"
#include "runtime/kernel_pack.h"
#include "tests/support/matchers.h"
#include "tests/unit/runtime/quantize_source.h"

#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moejit::runtime {
namespace {

using moejit::testing::succeeded;

bool has_nvrtc_in_memory() {
  return read_text_file("/proc/self/maps").value().find("libnvrtc") != std::string::npos;
}

// The status of a child that runs this.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class WithoutNvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(has_nvrtc_in_memory()) << "another test opened it";
    // Compiles into a folder, and writes a pack. 3: there is no NVRTC on this machine.
    const int made = in_child([this] {
      const auto engine = Engine::create({.cache_dir = folder(), .packs = {{}}}).value();
      const auto kernel = engine->obtain(source_);
      if (!kernel) return kernel.error().code == ErrorCode::kCompilerMissing ? 3 : 1;
      const std::vector entries = {
          kernel_entry(*kernel->binary, compiler::kernel_key(source_).value())};
      const auto pack = cache::encode_pack(entries, pack_manifest(entries));
      return has_nvrtc_in_memory() && cache::write_pack_file(pack_path(), *pack) ? 0 : 2;
    });
    if (made == 3) GTEST_SKIP() << "there is no NVRTC on this machine";
    ASSERT_EQ(made, 0);
  }
  std::string folder() const { return (dir_ / "cache").string(); }
  std::string pack_path() const { return (dir_ / "a.moejitpack").string(); }
  // The origin of the kernel, as a status; 99 where NVRTC was opened.
  int origin(const EngineOptions& options) const {
    const auto engine = Engine::create(options);
    const auto kernel = engine ? (*engine)->obtain(source_) : tl::make_unexpected(engine.error());
    if (!kernel) return 98;
    return has_nvrtc_in_memory() ? 99 : static_cast<int>(kernel->origin);
  }

  moejit::testing::TestDir dir_;
  const compiler::KernelSource source_ = quantize_source("cuda");
};

TEST_F(WithoutNvrtc, PacksServe) {
  const EngineOptions options{.cache_dir = (dir_ / "empty").string(), .packs = {{pack_path()}}};
  EXPECT_EQ(in_child([&] { return origin(options); }), static_cast<int>(KernelOrigin::kPack));
}

TEST_F(WithoutNvrtc, PacksServeWhereThereIsNone) {
  EXPECT_EQ(in_child([&] {
              setenv("MOEJIT_NVRTC", "/nonexistent/libnvrtc.so.13", 1);
              return origin({.cache_dir = folder(), .packs = {{pack_path()}}});
            }),
            static_cast<int>(KernelOrigin::kPack));
}

TEST_F(WithoutNvrtc, TheFolderServesWhereFilesTellTheRelease) {
  const int got = in_child([&] {
    if (!compiler::release_of_files(compiler::default_nvrtc_search())) return 77;
    return origin({.cache_dir = folder(), .packs = {{}}});
  });
  if (got == 77) GTEST_SKIP() << "NVRTC is found by the dynamic linker alone";
  EXPECT_EQ(got, static_cast<int>(KernelOrigin::kCache));
}

TEST_F(WithoutNvrtc, TheFolderServesWhereThereIsNone) {
  for (const bool is_frozen : {false, true})
    EXPECT_EQ(in_child([&] {
                setenv("MOEJIT_NVRTC", "/nonexistent/libnvrtc.so.13", 1);
                return origin({.cache_dir = folder(), .packs = {{}}, .frozen = is_frozen});
              }),
              static_cast<int>(KernelOrigin::kCache));
}

TEST_F(WithoutNvrtc, PacksAreAskedFirstWhereFilesDoNotTell) {
  // A name that is not NVRTC's own: it can be opened, but tells nothing.
  const std::string library = (dir_ / "other.so").string();
  ASSERT_EQ(in_child([&] {
              const auto api = compiler::nvrtc();
              return api && ::symlink((*api)->path.c_str(), library.c_str()) == 0 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              setenv("MOEJIT_NVRTC", library.c_str(), 1);
              return origin({.cache_dir = folder(), .packs = {{pack_path()}}});
            }),
            static_cast<int>(KernelOrigin::kPack));
  // What is frozen will compile nothing, and needs to know no compiler of this machine.
  EXPECT_EQ(in_child([&] {
              setenv("MOEJIT_NVRTC", library.c_str(), 1);
              return origin({.cache_dir = folder(), .packs = {{}}, .frozen = true});
            }),
            static_cast<int>(KernelOrigin::kCache));
}

}  // namespace
}  // namespace moejit::runtime
