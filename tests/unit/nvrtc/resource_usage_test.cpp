// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/resource_usage.h"

#include "compiler/nvrtc/compile.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "tests/unit/nvrtc/small_kernel.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace moejit::compiler {
namespace {

using Image = std::vector<std::byte>;

class Cubin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc()) GTEST_SKIP() << "no NVRTC to make a cubin with";
    const auto binary = compile_with_nvrtc(small_kernel());
    ASSERT_TRUE(binary.has_value());
    image_ = binary->bytes;
    entry_ = binary->entry;
  }

  // Copies end where their memory ends, so that an address checker sees reads past it.
  void read_all(const Image& image) const {
    static_cast<void>(cubin_entries(image));
    static_cast<void>(cubin_resource_usage(image, entry_));
  }

  Image image_;
  std::string entry_;
};

TEST_F(Cubin, HoldsOneEntryWithRegistersAndCode) {
  const auto entries = cubin_entries(image_);
  ASSERT_TRUE(entries.has_value());
  EXPECT_EQ(*entries, std::vector<std::string>{entry_});
  const auto usage = cubin_resource_usage(image_, entry_);
  ASSERT_TRUE(usage.has_value());
  EXPECT_GE(usage->registers, 4);
  EXPECT_LE(usage->registers, 32);
  EXPECT_EQ(usage->code_bytes % 128, 0);
}

TEST_F(Cubin, HasNoUsageForAnotherName) {
  const auto usage = cubin_resource_usage(image_, "moejit_absent");
  ASSERT_FALSE(usage.has_value());
  EXPECT_EQ(usage.error().code, ErrorCode::kInternal);
}

TEST_F(Cubin, IsReadSafelyWhenCutAnywhere) {
  for (std::size_t length = 0; length < image_.size(); ++length) {
    const Image cut(image_.begin(), image_.begin() + static_cast<std::ptrdiff_t>(length));
    read_all(cut);
    // The section table is at the end or the data it points to is.
    if (length < image_.size() / 2) {
      EXPECT_FALSE(cubin_resource_usage(cut, entry_).has_value());
    }
  }
}

TEST_F(Cubin, IsReadSafelyWhenAnyByteIsWrong) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    Image changed = image_;
    for (int changes = 0; changes < 1 + i % 4; ++changes) {
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    }
    read_all(changed);
  }
}

TEST(ElfSections, RefusesWhatIsNoElfImage) {
  EXPECT_FALSE(elf_sections({}).has_value());
  EXPECT_FALSE(elf_sections(Image(64)).has_value());
  EXPECT_FALSE(elf_sections(Image(1000, std::byte{0xff})).has_value());
}

TEST(SpillsFromLog, AreTheNumbersBeforeTheWords) {
  ResourceUsage usage;
  add_spills_from_log(
      "ptxas info    : Function properties for k\n"
      "    264 bytes stack frame, 436 bytes spill stores, 424 bytes spill loads\n",
      usage);
  EXPECT_EQ(usage.spill_store_bytes, 436);
  EXPECT_EQ(usage.spill_load_bytes, 424);
  add_spills_from_log("", usage);
  EXPECT_EQ(usage.spill_store_bytes, 0);
}

}  // namespace
}  // namespace moejit::compiler
