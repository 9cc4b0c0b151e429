// SPDX-License-Identifier: Apache-2.0
// Entries and packs with every byte changed: what comes to the driver is what was compiled.
#include "cache/pack_writer.h"
#include "compiler/kernel_source.h"
#include "compiler/support/digest.h"
#include "compiler/support/file.h"
#include "runtime/kernel_pack.h"
#include "tests/driver/driver_fixture.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <set>

namespace moejit::testing {
namespace {

namespace fs = std::filesystem;

class ImagesTest : public DriverTest {
 protected:
  // Thousands of entries are published, and each is brought to the disk.
  static void SetUpTestSuite() {
    DriverTest::SetUpTestSuite();
    if (fs::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);
  }
  void SetUp() override {
    DriverTest::SetUp();
    nvrtc()->code_bytes = 64;  // so that there are few bytes to change
    std::memcpy(nvrtc()->params[0].entry.data(), kEntry, sizeof(kEntry));
    nvrtc()->params[0].bytes = 64;
    device_ = open();
  }
  void TearDown() override {
    device_.reset();
    DriverTest::TearDown();
  }
  compiler::KernelSource source() const {
    return {.entry = kEntry, .text = "kernel\n", .target = {}};
  }
  runtime::EngineOptions options() {
    return {.cache_dir = (dir_ / "cache").string(),
            .packs = std::vector<std::string>{},
            .run_dir = (dir_ / "run").string()};
  }
  // An engine of its own finds or makes the kernel and the device loads it.
  void obtain_and_load(const runtime::EngineOptions& options, int64_t& corrupt) {
    const auto engine = runtime::Engine::create(options);
    if (!engine) return;  // a pack that is refused as a whole: nothing is offered
    const auto kernel = (*engine)->binary(source());
    ASSERT_TRUE(succeeded(kernel));
    ASSERT_TRUE(succeeded(device_->load(**kernel)));
    corrupt = (*engine)->counters().corrupt;
  }
  std::set<Digest> offered() const {
    std::set<Digest> digests;
    const auto count = std::min<std::size_t>(cuda()->images, FakeCudaControl::kImages);
    for (std::size_t i = 0; i < count; ++i)
      digests.insert(Digest{.bytes = cuda()->image_digests[i]});
    return digests;
  }
  // The device keeps what it has loaded; for every try there is a new one.
  void forget_loaded() { device_ = open(); }

  static constexpr char kEntry[] = "moejit_image_1";
  TestDir dir_;
  std::unique_ptr<runtime::Device> device_;
};

std::string only_entry_below(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& each : fs::recursive_directory_iterator(folder))
    if (each.is_regular_file() && each.path().filename().string().size() == 62)
      files.push_back(each.path().string());
  EXPECT_EQ(files.size(), 1u);
  return files.empty() ? "" : files[0];
}

TEST_F(ImagesTest, NoByteOfAnEntryCanChangeUnnoticed) {
  int64_t corrupt = 0;
  ASSERT_NO_FATAL_FAILURE(obtain_and_load(options(), corrupt));
  const std::set<Digest> good = offered();
  ASSERT_EQ(good.size(), 1u);
  const std::string path = only_entry_below(dir_ / "cache");
  const auto whole = read_file(path);
  ASSERT_TRUE(succeeded(whole));
  using Bytes = std::vector<std::byte>;
  const auto try_bytes = [&](const Bytes& bytes, std::size_t at) {
    fs::remove_all(dir_ / "cache" / "v1" / "quarantine");
    ASSERT_TRUE(write_file(path, bytes));
    forget_loaded();
    const int64_t compiled = nvrtc()->finished;
    ASSERT_NO_FATAL_FAILURE(obtain_and_load(options(), corrupt));
    ASSERT_EQ(corrupt, 1) << at;
    ASSERT_EQ(nvrtc()->finished, compiled + 1) << at;
    ASSERT_EQ(offered(), good) << at;
  };
  for (std::size_t at = 0; at < whole->size(); ++at) {
    Bytes bytes = *whole;
    bytes[at] ^= std::byte{1} << at % 8;
    ASSERT_NO_FATAL_FAILURE(try_bytes(bytes, at));
  }
  for (std::size_t length = 0; length < whole->size(); length += 3)
    ASSERT_NO_FATAL_FAILURE(try_bytes(
        Bytes(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(length)), length));
  EXPECT_GT(cuda()->images, static_cast<int64_t>(whole->size()));
  EXPECT_EQ(cuda()->images_refused, 0);
}

TEST_F(ImagesTest, NoByteOfAPackCanChangeUnnoticed) {
  int64_t corrupt = 0;
  ASSERT_NO_FATAL_FAILURE(obtain_and_load(options(), corrupt));
  const std::set<Digest> good = offered();
  const auto engine = runtime::Engine::create({.use_cache = false});
  const auto kernel = (*engine)->binary(source());
  ASSERT_TRUE(succeeded(kernel));
  const std::vector entries = {
      runtime::kernel_entry(**kernel, compiler::kernel_key(source()).value())};
  const auto whole = cache::encode_pack(entries, runtime::pack_manifest(entries));
  ASSERT_TRUE(succeeded(whole));
  const std::string path = (dir_ / "pack").string();
  runtime::EngineOptions with_pack = options();
  with_pack.packs = {path};
  // Served as it is.
  ASSERT_TRUE(cache::write_pack_file(path, *whole));
  fs::remove_all(dir_ / "cache");
  const int64_t compiled = nvrtc()->finished;
  ASSERT_NO_FATAL_FAILURE(obtain_and_load(with_pack, corrupt));
  ASSERT_EQ(nvrtc()->finished, compiled);

  for (std::size_t at = 0; at < whole->size(); ++at) {
    auto bytes = *whole;
    bytes[at] = static_cast<typename decltype(bytes)::value_type>(static_cast<unsigned>(bytes[at]) ^
                                                                  1U << at % 8);
    fs::remove_all(dir_ / "cache");
    ASSERT_TRUE(cache::write_pack_file(path, bytes));
    forget_loaded();
    ASSERT_NO_FATAL_FAILURE(obtain_and_load(with_pack, corrupt));
    ASSERT_EQ(offered(), good) << at;
  }
  EXPECT_EQ(cuda()->images_refused, 0);
}

}  // namespace
}  // namespace moejit::testing
