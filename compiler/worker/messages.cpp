// SPDX-License-Identifier: Apache-2.0
#include "compiler/worker/messages.h"

#include "compiler/support/json_text.h"
#include "compiler/support/json_view.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace moejit::compiler {
namespace {

// A message is a line of JSON and, behind it, the machine code of a kernel.
struct Message {
  JsonDocument head;
  std::span<const std::byte> code;
};

std::vector<std::byte> written(const Json& head, std::span<const std::byte> code = {}) {
  const std::string line = head.dump() + "\n";
  const auto bytes = std::as_bytes(std::span(line));
  std::vector<std::byte> message(bytes.begin(), bytes.end());
  message.insert(message.end(), code.begin(), code.end());
  return message;
}

// Returns none if the bytes are no message. They may be anything, so what they may take is limited.
std::optional<Message> read_message(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  auto head = parse_json(
      text.substr(0, end),
      {.source_name = "message", .stage = Stage::kCompile, .max_depth = 4, .max_values = 64});
  if (!head) return std::nullopt;
  return Message{std::move(*head), bytes.subspan(end + 1)};
}

template <typename Value>
std::optional<Value> if_read(Result<Value> read) {
  return read ? std::optional(std::move(*read)) : std::nullopt;
}

template <typename Enumerator>
struct Name {
  Enumerator value;
  std::string_view name;
};

constexpr std::array kCodes = {
#define MOEJIT_ERROR_CODE(enumerator, name, exit_code, meaning) \
  Name<ErrorCode>{ErrorCode::enumerator, name},
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE
};

ErrorCode code_named(std::string_view name) {
  for (const auto& code : kCodes)
    if (code.name == name) return code.value;
  return ErrorCode::kCompilerFault;
}

Json error_json(const Error& error) {
  return {{"code", to_string(error.code)},
          {"message", error.message},
          {"hint", error.hint},
          {"detail", error.detail}};
}

Result<Error> read_error(const JsonView& from) {
  MOEJIT_TRY_ASSIGN(const std::string code, from.read_string_at("code"));
  Error error{Stage::kCompile, code_named(code), {}, {}, {}};
  MOEJIT_TRY_ASSIGN(error.message, from.read_string_at("message"));
  MOEJIT_TRY_ASSIGN(error.hint, from.read_string_at("hint"));
  MOEJIT_TRY_ASSIGN(error.detail, from.read_string_at("detail"));
  return error;
}

struct UsageMember {
  std::string_view name;
  std::int32_t ResourceUsage::*member;
};

constexpr std::array kUsageMembers = {
    UsageMember{"registers", &ResourceUsage::registers},
    UsageMember{"static_shared_bytes", &ResourceUsage::static_shared_bytes},
    UsageMember{"stack_bytes", &ResourceUsage::stack_bytes},
    UsageMember{"spill_store_bytes", &ResourceUsage::spill_store_bytes},
    UsageMember{"spill_load_bytes", &ResourceUsage::spill_load_bytes},
    UsageMember{"code_bytes", &ResourceUsage::code_bytes}};

Json usage_json(const ResourceUsage& usage) {
  Json json = Json::object();
  for (const UsageMember& field : kUsageMembers) json[field.name] = usage.*field.member;
  return json;
}

Result<ResourceUsage> read_usage(const JsonView& from) {
  ResourceUsage usage;
  for (const UsageMember& field : kUsageMembers) {
    MOEJIT_TRY_ASSIGN(const JsonView count, from.at(field.name));
    MOEJIT_TRY_ASSIGN(const std::int64_t number,
                      count.read_int({0, std::numeric_limits<std::int32_t>::max()}));
    usage.*field.member = static_cast<std::int32_t>(number);
  }
  return usage;
}

Json time_json(const CompileTime& time) {
  Json json = {{"total", json_number(time.total)}};
  if (time.cpu) json["cpu"] = json_number(*time.cpu);
  if (!time.phases) return json;
  json["phases"] = {{"front_end", json_number(time.phases->front_end)},
                    {"optimizer", json_number(time.phases->optimizer)},
                    {"assembler", json_number(time.phases->assembler)}};
  return json;
}

Result<double> number_at(const JsonView& from, std::string_view key) {
  MOEJIT_TRY_ASSIGN(const JsonView number, from.at(key));
  return number.read_number();
}

Result<CompileTime> read_time(const JsonView& from) {
  CompileTime time;
  MOEJIT_TRY_ASSIGN(time.total, number_at(from, "total"));
  if (from.find("cpu")) {
    MOEJIT_TRY_ASSIGN(time.cpu, number_at(from, "cpu"));
  }
  if (const auto phases = from.find("phases")) {
    time.phases.emplace();
    MOEJIT_TRY_ASSIGN(time.phases->front_end, number_at(*phases, "front_end"));
    MOEJIT_TRY_ASSIGN(time.phases->optimizer, number_at(*phases, "optimizer"));
    MOEJIT_TRY_ASSIGN(time.phases->assembler, number_at(*phases, "assembler"));
  }
  return time;
}

Result<WorkerRequest> read_request(const JsonView& from) {
  WorkerRequest request;
  MOEJIT_TRY_ASSIGN(request.source.entry, from.read_string_at("entry"));
  MOEJIT_TRY_ASSIGN(request.source.text, from.read_string_at("text"));
  MOEJIT_TRY_ASSIGN(const std::string target, from.read_string_at("target"));
  MOEJIT_TRY_ASSIGN(request.source.target, parse_target(target));
  MOEJIT_TRY_ASSIGN(const std::string key, from.read_string_at("key"));
  const auto digest = Digest::from_hex(key);
  if (!digest) return from.fail(ErrorCode::kInvalidValue, "wanted a digest");
  request.key = *digest;
  return request;
}

Result<CompiledKernel> read_kernel(const JsonView& from, const Message& message,
                                   const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const JsonView bytes, from.at("bytes"));
  const auto size = static_cast<std::int64_t>(message.code.size());
  MOEJIT_TRY(bytes.read_int({size, size}));
  MOEJIT_TRY_ASSIGN(const JsonView time, from.at("time"));
  CompiledKernel compiled{.binary = {.entry = source.entry,
                                     .target = source.target,
                                     .bytes = {message.code.begin(), message.code.end()},
                                     .usage = std::nullopt},
                          .time = {},
                          .loss = std::nullopt};
  MOEJIT_TRY_ASSIGN(compiled.time, read_time(time));
  if (const auto usage = from.find("usage")) {
    MOEJIT_TRY_ASSIGN(compiled.binary.usage, read_usage(*usage));
  }
  if (const auto loss = from.find("loss")) {
    MOEJIT_TRY_ASSIGN(compiled.loss, read_error(*loss));
  }
  return compiled;
}

}  // namespace

std::vector<std::byte> encode_request(const WorkerRequest& request) {
  return written({{"entry", request.source.entry},
                  {"text", request.source.text},
                  {"target", to_string(request.source.target)},
                  {"key", request.key.hex()}});
}

std::optional<WorkerRequest> decode_request(std::span<const std::byte> bytes) {
  const auto message = read_message(bytes);
  if (!message || !message->code.empty()) return std::nullopt;
  return if_read(read_request(JsonView(message->head)));
}

std::vector<std::byte> encode_reply(const Result<CompiledKernel>& reply) {
  if (!reply) return written({{"error", error_json(reply.error())}});
  const auto& [binary, time, loss] = *reply;
  Json head = {{"bytes", binary.bytes.size()}, {"time", time_json(time)}};
  if (binary.usage) head["usage"] = usage_json(*binary.usage);
  if (loss) head["loss"] = error_json(*loss);
  return written(head, binary.bytes);
}

std::optional<Result<CompiledKernel>> decode_reply(std::span<const std::byte> bytes,
                                                   const KernelSource& source) {
  const auto message = read_message(bytes);
  if (!message) return std::nullopt;
  const JsonView head(message->head);
  if (const auto told = head.find("error")) {
    auto error = if_read(read_error(*told));
    if (!error) return std::nullopt;
    return tl::make_unexpected(std::move(*error));
  }
  auto kernel = if_read(read_kernel(head, *message, source));
  if (!kernel) return std::nullopt;
  return std::move(*kernel);
}

}  // namespace moejit::compiler
