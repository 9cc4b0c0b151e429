// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/rendezvous_messages.h"

#include "compiler/support/digest.h"
#include "compiler/support/json_text.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <utility>

namespace moejit::runtime {
namespace {

// Returns "name" and "value" of "name=value".
std::pair<std::string_view, std::string_view> parts_of(std::string_view field) {
  const std::size_t equals = std::min(field.find('='), field.size());
  return {field.substr(0, equals), field.substr(std::min(equals + 1, field.size()))};
}

std::string_view value_of(const RankIdentity& of, std::string_view name) {
  for (const std::string& field : of.fields)
    if (parts_of(field).first == name) return parts_of(field).second;
  return "nothing";
}

}  // namespace

Result<void> compare(const RankIdentity& first, const RankIdentity& second) {
  for (const RankIdentity* const named : {&first, &second})
    for (const std::string& field : named->fields) {
      const std::string_view name = parts_of(field).first;
      const std::string_view one = value_of(first, name), other = value_of(second, name);
      if (one != other)
        return fail(
            Stage::kLaunch, ErrorCode::kTensorMismatch,
            fmt::format("ranks {} and {} of a group differ in {}: {} and {}, wanted the same",
                        first.rank, second.rank, name, one, other),
            "give all ranks the same description and the same version of moejit");
    }
  return {};
}

namespace {

using Kind = RendezvousMessage::Kind;

// Changes with the messages: processes of other versions are told apart before anything is read.
constexpr std::string_view kProtocol = "moejit group 1";
constexpr std::array<std::string_view, 6> kKinds = {"hello", "present", "members",
                                                    "ready", "go",      "error"};
constexpr std::size_t kLongField = 1000;

Json json_of(const Introduction& rank) {
  return {{"rank", rank.rank},
          {"ranks", rank.ranks},
          {"bytes", rank.bytes},
          {"gpu", rank.gpu},
          {"identity", rank.identity}};
}

int64_t integer_of(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = find_member(object, key);
  return value == nullptr ? 0 : value->integer.value_or(0);
}

// Returns a number as one of 32 bits; -1, which is neither a rank nor a count, if it has more.
int32_t number_of(const JsonValue& object, std::string_view key) {
  const int64_t number = integer_of(object, key);
  return std::in_range<int32_t>(number) ? static_cast<int32_t>(number) : -1;
}

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = find_member(object, key);
  return value == nullptr ? "" : value->text;
}

Introduction introduction_of(const JsonValue& object) {
  Introduction rank{.rank = number_of(object, "rank"),
                    .ranks = number_of(object, "ranks"),
                    .bytes = integer_of(object, "bytes"),
                    .gpu = text_of(object, "gpu")};
  if (const JsonValue* const identity = find_member(object, "identity"))
    rank.identity = read_strings(*identity).value_or(std::vector<std::string>{});
  return rank;
}

// Other versions may number codes otherwise, so they travel by name.
ErrorCode code_named(std::string_view name) {
#define MOEJIT_ERROR_CODE(enumerator, text, exit_code, meaning) \
  if (name == (text)) return ErrorCode::enumerator;
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE
  return ErrorCode::kInterrupted;
}

}  // namespace

std::vector<std::string> shortened(std::vector<std::string> identity) {
  for (std::string& field : identity) {
    if (field.size() <= kLongField) continue;
    const std::size_t value = std::min(field.find('='), field.size() - 1) + 1;
    const std::string digest = sha256(std::string_view(field).substr(value)).hex();
    field = field.substr(0, std::min(value, kLongField)) + "digest " + digest;
  }
  return identity;
}

std::string encode(const RendezvousMessage& message) {
  Json json = {{"protocol", kProtocol}, {"kind", kKinds[static_cast<std::size_t>(message.kind)]}};
  if (message.kind == Kind::kHello) json["hello"] = json_of(message.hello);
  if (message.kind == Kind::kPresent) json["present"] = message.present;
  if (message.kind == Kind::kMembers) {
    Json members = Json::array();
    for (const Introduction& member : message.members) members.push_back(json_of(member));
    json["members"] = members;
  }
  if (message.error) {
    json["code"] = to_string(message.error->code);
    json["message"] = message.error->message;
    json["hint"] = message.error->hint;
  }
  return json.dump();
}

std::optional<RendezvousMessage> decode(std::string_view text) {
  const Result<JsonDocument> read = parse_json(text, {.source_name = "rendezvous"});
  if (!read || text_of(read->root, "protocol") != kProtocol) return std::nullopt;
  const auto kind = std::ranges::find(kKinds, text_of(read->root, "kind"));
  if (kind == kKinds.end()) return std::nullopt;
  RendezvousMessage message{.kind = static_cast<Kind>(kind - kKinds.begin())};
  message.present = static_cast<uint32_t>(integer_of(read->root, "present"));
  if (const JsonValue* const hello = find_member(read->root, "hello"))
    message.hello = introduction_of(*hello);
  if (const JsonValue* const members = find_member(read->root, "members"))
    for (const JsonValue& member : members->elements)
      message.members.push_back(introduction_of(member));
  if (message.kind == Kind::kError)
    message.error = Error{.stage = Stage::kLoad,
                          .code = code_named(text_of(read->root, "code")),
                          .message = text_of(read->root, "message"),
                          .hint = text_of(read->root, "hint"),
                          .detail = {}};
  return message;
}

int send(const PacketSocket& link, const RendezvousMessage& message, std::span<const int> files,
         const Deadline& deadline) {
  return link.send(encode(message), files, deadline);
}

tl::unexpected<Error> refuse_rendezvous(ErrorCode code, std::string message, std::string hint) {
  return fail(Stage::kLoad, code, std::move(message), std::move(hint));
}

Error told_by(int32_t rank, Error error) {
  error.message = fmt::format("rank {} could not open the group: {}", rank, error.message);
  return error;
}

std::string ranks_text(uint32_t bits) {
  std::string numbers;
  int32_t count = 0;
  for (int32_t rank = 0; rank < 32; ++rank)
    if ((bits >> rank & 1U) != 0) numbers += fmt::format("{}{}", count++ == 0 ? "" : ", ", rank);
  return fmt::format("{} {}", count == 1 ? "rank" : "ranks", numbers);
}

}  // namespace moejit::runtime
