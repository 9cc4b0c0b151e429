// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_entry.h"

#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

const compiler::KernelSource kSource{.entry = "f", .text = "text", .target = {}};
const compiler::KernelBinary kBinary{
    .entry = "f",
    .target = {},
    .bytes = {std::byte{1}, std::byte{2}},
    .usage = compiler::ResourceUsage{.registers = 32, .code_bytes = 7}};
const compiler::KernelKey kKey{.digest = sha256("key"), .fields = {{"schema", "1"}, {"a", "\n"}}};

TEST(KernelMetadata, IsCanonicalJson) {
  EXPECT_EQ(kernel_metadata(kBinary, kKey),
            R"({"entry":"f","key":[["schema","1"],["a","\n"]],"target":"cuda:sm_90a",)"
            R"("usage":{"code_bytes":7,"registers":32,"spill_load_bytes":0,"spill_store_bytes":0,)"
            R"("stack_bytes":0,"static_shared_bytes":0}})");
}

TEST(KernelMetadata, HasTheFirstDigitsOfHeaders) {
  compiler::KernelKey key = kKey;
  key.fields.push_back({"header:moejit_device/core/math.cuh", sha256("math").hex()});
  key.fields.push_back({"header moejit_sim/machine.h", sha256("machine").hex()});
  key.fields.push_back({"header:made_up", "no digest, and long"});
  key.fields.push_back({"source", sha256("source").hex()});
  const std::string metadata = kernel_metadata(kBinary, key);
  for (std::size_t i = 2; i < 4; ++i) key.fields[i].value.resize(8);
  EXPECT_EQ(key_fields_of(metadata), key.fields);
}

TEST(KernelOf, GivesBackTheKernel) {
  const auto kernel =
      kernel_of({kKey.digest, kernel_metadata(kBinary, kKey), kBinary.bytes}, kSource);
  ASSERT_TRUE(kernel);
  EXPECT_EQ(*kernel, kBinary);
}

TEST(KernelOf, WorksWithoutResourceUse) {
  compiler::KernelBinary binary = kBinary;
  binary.usage.reset();
  EXPECT_EQ(kernel_of({kKey.digest, kernel_metadata(binary, kKey), binary.bytes}, kSource), binary);
}

TEST(KernelOf, RefusesEntriesThatAreNotOfThisKernel) {
  const auto is_refused = [](const std::string& metadata) {
    return !kernel_of({kKey.digest, metadata, kBinary.bytes}, kSource).has_value();
  };
  EXPECT_TRUE(is_refused(""));
  EXPECT_TRUE(is_refused("{"));
  EXPECT_TRUE(is_refused("[]"));
  EXPECT_TRUE(is_refused(R"({"entry":"f"})"));
  EXPECT_TRUE(is_refused(R"({"entry":"g","target":"cuda:sm_90a"})"));
  EXPECT_TRUE(is_refused(R"({"entry":1,"target":"cuda:sm_90a"})"));
  EXPECT_TRUE(is_refused(R"({"entry":"f","target":"sim"})"));
  EXPECT_TRUE(is_refused(R"({"entry":"f","target":"cuda:sm_90a","usage":{"registers":1}})"));
  // Numbers are not cut to 32 bits.
  std::string huge = kernel_metadata(kBinary, kKey);
  EXPECT_FALSE(is_refused(huge));
  huge.replace(huge.find(R"("registers":32)"), 14, R"("registers":4294967328)");
  EXPECT_TRUE(is_refused(huge));
  EXPECT_FALSE(is_refused(R"({"entry":"f","target":"cuda:sm_90a"})"));
}

TEST(KeyFieldsOf, GivesBackTheFields) {
  EXPECT_EQ(key_fields_of(kernel_metadata(kBinary, kKey)), kKey.fields);
  const std::string digest = sha256("math").hex();
  // As earlier versions stored them.
  EXPECT_EQ(key_fields_of(R"({"key":[["header:moejit_device/a.cuh",")" + digest +
                          R"("],["header:*","core/ math d974df2c"]]})"),
            (std::vector<HashedField>{{"header:moejit_device/a.cuh", digest},
                                      {"header:*", "core/ math d974df2c"}}));
  for (const char* text : {"", "{", "[]", "{}", R"({"key":1})", R"({"key":[1]})",
                           R"({"key":[["a"]]})", R"({"key":[["a",1]]})"})
    EXPECT_TRUE(key_fields_of(text).empty()) << text;
}

}  // namespace
}  // namespace moejit::runtime
