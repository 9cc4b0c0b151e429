// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/measuring_messages.h"

#include <nlohmann/json.hpp>

namespace moejit::tune {
namespace {

using Json = nlohmann::json;
using Call = MeasureRequest::Call;

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

std::optional<double> number_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

Json json_of(const Error& error) {
  return {static_cast<int>(error.stage), static_cast<int>(error.code), error.message, error.hint,
          error.detail};
}

// Both processes run the same program, so they number stages and codes alike.
Error error_of(const Json& json) {
  return {static_cast<Stage>(json.at(0).get<int>()), static_cast<ErrorCode>(json.at(1).get<int>()),
          json.at(2).get<std::string>(), json.at(3).get<std::string>(),
          json.at(4).get<std::string>()};
}

// Returns what `read` makes of the line; none if a field is missing or has another type.
template <typename Message>
std::optional<Message> decode(std::string_view line, Message (*read)(const Json&)) {
  try {
    return read(Json::parse(line));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string encode(const MeasureRequest& request) {
  return line_of({{"call", static_cast<int>(request.call)},
                  {"index", request.index},
                  {"candidates", request.candidates},
                  {"seconds", request.seconds},
                  {"most_seconds", request.most_seconds}});
}

std::string encode(const MeasureReply& reply) {
  return line_of({{"error", reply.error ? json_of(*reply.error) : Json()},
                  {"is_last", reply.is_last},
                  {"numbers", reply.numbers},
                  {"megahertz", json_of(reply.megahertz)},
                  {"watts", json_of(reply.watts)},
                  {"texts", reply.texts}});
}

std::optional<MeasureRequest> decode_measure_request(std::string_view line) {
  return decode<MeasureRequest>(line, [](const Json& json) {
    return MeasureRequest{.call = static_cast<Call>(json.at("call").get<int>()),
                          .index = json.at("index").get<int64_t>(),
                          .candidates = json.at("candidates").get<std::vector<int32_t>>(),
                          .seconds = json.at("seconds").get<double>(),
                          .most_seconds = json.at("most_seconds").get<double>()};
  });
}

std::optional<MeasureReply> decode_measure_reply(std::string_view line) {
  return decode<MeasureReply>(line, [](const Json& json) {
    MeasureReply reply{.error = {},
                       .is_last = json.at("is_last").get<bool>(),
                       .numbers = json.at("numbers").get<std::vector<double>>(),
                       .megahertz = number_of(json.at("megahertz")),
                       .watts = number_of(json.at("watts")),
                       .texts = json.at("texts").get<std::vector<std::string>>()};
    if (!json.at("error").is_null()) reply.error = error_of(json.at("error"));
    return reply;
  });
}

}  // namespace moejit::tune
