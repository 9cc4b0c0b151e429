// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/measuring_messages.h"

#include <gtest/gtest.h>

namespace moejit::tune {
namespace {

TEST(MeasuringMessages, ReadsBackRequests) {
  const MeasureRequest request{.call = MeasureRequest::Call::kTime,
                               .index = 1234567890123,
                               .candidates = {0, 3, 28, 0},
                               .seconds = 0.6,
                               .most_seconds = 3.0};
  EXPECT_EQ(decode_measure_request(encode(request)), request);
}

TEST(MeasuringMessages, ReadsBackReplies) {
  const MeasureReply reply{.error = {},
                           .is_last = true,
                           .numbers = {1.0 / 3.0, 5e-7},
                           .megahertz = 1402.5,
                           .watts = {},
                           .texts = {"sim", "a\nb"}};
  const std::string line = encode(reply);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = decode_measure_reply(line);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->is_last);
  EXPECT_EQ(read->numbers, reply.numbers);
  EXPECT_EQ(read->megahertz, reply.megahertz);
  EXPECT_EQ(read->watts, std::nullopt);
  EXPECT_EQ(read->texts, reply.texts);
}

TEST(MeasuringMessages, ReadsBackErrorsWhateverTheirBytes) {
  MeasureReply reply;
  reply.error =
      Error{Stage::kCompile, ErrorCode::kCompileFailed, "line\n\"1\"", "hint", "\xff log"};
  const auto read = decode_measure_reply(encode(reply));
  ASSERT_TRUE(read && read->error);
  EXPECT_EQ(read->error->stage, Stage::kCompile);
  EXPECT_EQ(read->error->code, ErrorCode::kCompileFailed);
  EXPECT_EQ(read->error->message, "line\n\"1\"");
  EXPECT_EQ(read->error->hint, "hint");
  EXPECT_NE(read->error->detail.find(" log"), std::string::npos);
}

TEST(MeasuringMessages, RefusesOtherText) {
  for (const char* text : {"", "{", "[]", "{}", "null", R"({"call":"x"})", R"({"is_last":1})"}) {
    EXPECT_FALSE(decode_measure_request(text)) << text;
    EXPECT_FALSE(decode_measure_reply(text)) << text;
  }
}

}  // namespace
}  // namespace moejit::tune
