// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::tune {

// A request to the process that measures: a call of a function of Measurer, or for the device's
// facts.
struct MeasureRequest {
  enum class Call { kDevice, kPrefetch, kCompile, kOpen, kMake, kHeat, kTime };
  Call call = Call::kDevice;
  int64_t index = 0;  // a problem, candidate or layer; for blocks, the launches of one
  std::vector<int32_t> candidates;
  double seconds = 0.0, most_seconds = 0.0;

  bool operator==(const MeasureRequest&) const = default;
};

// The answer to a request: an error, or numbers and texts.
struct MeasureReply {
  std::optional<Error> error;
  bool is_last = false;  // the process ends, since its device no longer works
  std::vector<double> numbers;
  std::optional<double> megahertz, watts;
  std::vector<std::string> texts;
};

// Encode a message as one line of JSON, and decode it. Decoding takes any text; it returns none if
// the text is no such message. Bytes of a text that are not UTF-8 are replaced.
std::string encode(const MeasureRequest& request);
std::string encode(const MeasureReply& reply);
std::optional<MeasureRequest> decode_measure_request(std::string_view line);
std::optional<MeasureReply> decode_measure_reply(std::string_view line);

}  // namespace moejit::tune
