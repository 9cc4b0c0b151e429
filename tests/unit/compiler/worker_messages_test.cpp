// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"
#include "compiler/worker/cbor.h"
#include "compiler/worker/messages.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

namespace moejit::compiler {
namespace {

const KernelSource kShortSource{.entry = "f", .text = "text", .target = {}};

CompiledKernel kernel() {
  CompiledKernel compiled{
      .binary = {.entry = "f", .target = {}, .bytes = {}, .usage = {}},
      .time = {.total = 1.1, .cpu = 0.5, .phases = CompilePhases{0.25, 0.1, 3}},
      .loss = Error{Stage::kCompile, ErrorCode::kCompileFailed, "spills", "hint", "\xff log"}};
  compiled.binary.bytes.assign(70'000, std::byte{0xab});
  compiled.binary.usage = ResourceUsage{.registers = 168,
                                        .static_shared_bytes = 0,
                                        .stack_bytes = 23,
                                        .spill_store_bytes = 24,
                                        .spill_load_bytes = 65'536,
                                        .code_bytes = 2'147'483'647};
  return compiled;
}

// Another reader of CBOR finds the same in it.
nlohmann::json other_reading(const std::vector<std::byte>& bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return nlohmann::json::from_cbor(first, first + bytes.size());
}

TEST(WorkerMessages, AreReadAsTheyWereWritten) {
  const WorkerRequest request{.source = kShortSource, .key = sha256("key")};
  EXPECT_EQ(decode_request(encode_request(request)), request);
  const auto reply = decode_reply(encode_reply(kernel()), kShortSource);
  ASSERT_TRUE(reply && reply->has_value());
  EXPECT_EQ((*reply)->binary, kernel().binary);
  EXPECT_EQ((*reply)->time.total, 1.1);
  EXPECT_EQ((*reply)->time.cpu, 0.5);
  EXPECT_EQ((*reply)->time.phases->optimizer, 0.1);
  EXPECT_EQ(to_string(*(*reply)->loss), to_string(*kernel().loss));
  const auto error = decode_reply(encode_reply(tl::make_unexpected(*kernel().loss)), kShortSource);
  ASSERT_TRUE(error && !error->has_value());
  EXPECT_EQ(to_string(error->error()), to_string(*kernel().loss));
}

TEST(WorkerMessages, AreCborForOtherReadersToo) {
  const nlohmann::json read = other_reading(encode_reply(kernel()));
  EXPECT_EQ(read.at("bytes").get_binary().size(), 70'000u);
  EXPECT_EQ(read.at("usage"), (nlohmann::json{168, 0, 23, 24, 65'536, 2'147'483'647}));
  EXPECT_EQ(read.at("time"),
            (nlohmann::json{{"total", 1.1}, {"cpu", 0.5}, {"phases", {0.25, 0.1, 3.0}}}));
  EXPECT_EQ(read.at("loss").at("message"), "spills");
  EXPECT_EQ(read.size(), 4u);
  const auto negative = CborWriter().array(2).integer(-1).integer(INT64_MIN).take();
  EXPECT_EQ(other_reading(negative), (nlohmann::json{-1, INT64_MIN}));
}

TEST(WorkerMessages, AreReadAsAnotherWriterWritesThem) {
  const auto octets = nlohmann::json::to_cbor(
      {{"bytes", nlohmann::json::binary({1, 2})}, {"time", {{"total", 2.5}}}});
  const auto reply = decode_reply(std::as_bytes(std::span(octets)), kShortSource);
  ASSERT_TRUE(reply && reply->has_value());
  EXPECT_EQ((*reply)->binary.bytes, (std::vector{std::byte{1}, std::byte{2}}));
  EXPECT_EQ((*reply)->time.total, 2.5);
  EXPECT_FALSE((*reply)->binary.usage || (*reply)->loss || (*reply)->time.cpu);
}

TEST(WorkerMessages, AreNoneOfOtherBytes) {
  std::vector<std::byte> bytes = encode_reply(kernel());
  bytes.pop_back();
  EXPECT_FALSE(decode_reply(bytes, kShortSource));
  EXPECT_FALSE(decode_reply(CborWriter().map(1).text("time").number(1).take(), kShortSource));
  EXPECT_FALSE(decode_reply(CborWriter().map(1).text("code").integer(1).take(), kShortSource));
  EXPECT_FALSE(decode_request(CborWriter().text("request").take()));
  CborWriter deep;
  for (int i = 0; i < 5; ++i) deep.array(1);
  EXPECT_FALSE(read_cbor(deep.integer(1).take(), 4));
}

}  // namespace
}  // namespace moejit::compiler
