// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"
#include "compiler/worker/messages.h"

#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>

namespace moejit::compiler {
namespace {

const KernelSource kShortSource{.entry = "f", .text = "text", .target = {}};

CompiledKernel kernel() {
  CompiledKernel compiled{
      .binary = {.entry = "f", .target = {}, .bytes = {}, .usage = {}},
      .time = {.total = 1.1, .cpu = 0.5, .phases = CompilePhases{0.25, 0.1, 3}},
      .loss = Error{Stage::kCompile, ErrorCode::kCompileFailed, "spills", "hint", "log"}};
  compiled.binary.bytes.assign(70'000, std::byte{0xab});
  compiled.binary.usage = ResourceUsage{.registers = 168,
                                        .static_shared_bytes = 0,
                                        .stack_bytes = 23,
                                        .spill_store_bytes = 24,
                                        .spill_load_bytes = 65'536,
                                        .code_bytes = 2'147'483'647};
  return compiled;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
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

TEST(WorkerMessages, AreALineOfJsonAndTheCode) {
  const std::vector<std::byte> bytes = encode_reply(kernel());
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t end = text.find('\n');
  EXPECT_EQ(text.size() - end - 1, 70'000U);
  EXPECT_EQ(
      text.substr(0, end),
      "{\"bytes\":70000,\"time\":{\"total\":1.1,\"cpu\":0.5,\"phases\":{\"front_end\":0.25,"
      "\"optimizer\":0.1,\"assembler\":3}},\"usage\":{\"registers\":168,\"static_shared_bytes\":0,"
      "\"stack_bytes\":23,\"spill_store_bytes\":24,\"spill_load_bytes\":65536,"
      "\"code_bytes\":2147483647},\"loss\":{\"code\":\"compile_failed\",\"message\":\"spills\","
      "\"hint\":\"hint\",\"detail\":\"log\"}}");
}

TEST(WorkerMessages, HaveTextsOfAnyBytes) {
  const Error odd{Stage::kCompile, ErrorCode::kCompileFailed, "a\nb", std::string("\0", 1),
                  "\xff log"};
  const auto reply = decode_reply(encode_reply(tl::make_unexpected(odd)), kShortSource);
  ASSERT_TRUE(reply && !reply->has_value());
  EXPECT_EQ(reply->error().message, odd.message);
  EXPECT_EQ(reply->error().hint, odd.hint);
  EXPECT_EQ(reply->error().detail, "\xEF\xBF\xBD log");
}

TEST(WorkerMessages, AreReadWithoutWhatMayBeAbsent) {
  const auto reply =
      decode_reply(bytes_of("{\"bytes\": 2, \"time\": {\"total\": 2.5}}\nab"), kShortSource);
  ASSERT_TRUE(reply && reply->has_value());
  EXPECT_EQ((*reply)->binary.bytes, bytes_of("ab"));
  EXPECT_EQ((*reply)->time.total, 2.5);
  EXPECT_FALSE((*reply)->binary.usage || (*reply)->loss || (*reply)->time.cpu);
}

TEST(WorkerMessages, AreNoneOfOtherBytes) {
  std::vector<std::byte> bytes = encode_reply(kernel());
  bytes.pop_back();
  EXPECT_FALSE(decode_reply(bytes, kShortSource));
  for (const char* text : {"", "\n", "{}", "{}\n", "[]\n", "{\"time\": 1}\n", "{\"error\": 1}\n",
                           R"({"error": {"code": 1, "message": "", "hint": "", "detail": ""}})"
                           "\n",
                           R"({"bytes": 1, "time": {"total": 1}})"
                           "\n",
                           R"({"bytes": 1, "time": {"total": 1}})"
                           "\nab",
                           R"({"bytes": 1, "time": {"total": 1}, "usage": {"registers": 1}})"
                           "\na",
                           R"({"bytes": 1, "time": {"total": 1}, "loss": {}})"
                           "\na",
                           "[[[[[1]]]]]\n"})
    EXPECT_FALSE(decode_reply(bytes_of(text), kShortSource)) << text;
  const WorkerRequest request{.source = kShortSource, .key = sha256("key")};
  bytes = encode_request(request);
  bytes.push_back(std::byte{'a'});
  EXPECT_FALSE(decode_request(bytes));
  EXPECT_FALSE(decode_request(bytes_of("\"request\"\n")));
  EXPECT_FALSE(decode_request(bytes_of(R"({"entry": "f", "text": "", "target": "sim", "key": "1"})"
                                       "\n")));
}

}  // namespace
}  // namespace moejit::compiler
