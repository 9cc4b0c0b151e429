// SPDX-License-Identifier: Apache-2.0
#include "compiler/worker/messages.h"

#include <array>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>

namespace moejit::compiler {
namespace {

using Json = nlohmann::json;
using Octets = std::vector<std::uint8_t>;

std::vector<std::byte> to_bytes(const Json& json) {
  const Octets octets = Json::to_cbor(json);
  const auto* first = reinterpret_cast<const std::byte*>(octets.data());
  return {first, first + octets.size()};
}

// What `read` makes of the message; none where it is malformed or lacks something.
template <typename Function>
auto read_message(std::span<const std::byte> bytes, const Function& read)
    -> std::optional<decltype(read(Json{}))> {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  try {
    return read(Json::from_cbor(first, first + bytes.size()));
  } catch (const std::exception&) {  // nlohmann's way to say so
    return std::nullopt;
  }
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

Json usage_json(const ResourceUsage& usage) {
  return {usage.registers,         usage.static_shared_bytes, usage.stack_bytes,
          usage.spill_store_bytes, usage.spill_load_bytes,    usage.code_bytes};
}

ResourceUsage usage_of(const Json& json) {
  return {.registers = json.at(0),
          .static_shared_bytes = json.at(1),
          .stack_bytes = json.at(2),
          .spill_store_bytes = json.at(3),
          .spill_load_bytes = json.at(4),
          .code_bytes = json.at(5)};
}

CompileTime time_of(const Json& json) {
  CompileTime time{.total = json.at("total"), .cpu = std::nullopt, .phases = std::nullopt};
  if (json.contains("cpu")) time.cpu = json["cpu"].get<double>();
  if (json.contains("phases")) {
    const Json& phases = json["phases"];
    time.phases = CompilePhases{
        .front_end = phases.at(0), .optimizer = phases.at(1), .assembler = phases.at(2)};
  }
  return time;
}

}  // namespace

std::vector<std::byte> encode_request(const WorkerRequest& request) {
  return to_bytes({{"entry", request.source.entry},
                   {"text", request.source.text},
                   {"target", to_string(request.source.target)},
                   {"key", request.key.hex()}});
}

std::optional<WorkerRequest> decode_request(std::span<const std::byte> bytes) {
  auto read = read_message(bytes, [](const Json& json) -> std::optional<WorkerRequest> {
    auto target = parse_target(json.at("target").get<std::string>());
    auto key = Digest::from_hex(json.at("key").get<std::string>());
    if (!target || !key) return std::nullopt;
    return WorkerRequest{.source = {.entry = json.at("entry"),
                                    .text = json.at("text"),
                                    .target = std::move(*target)},
                         .key = *key};
  });
  return read ? std::move(*read) : std::nullopt;
}

std::vector<std::byte> encode_reply(const Result<CompiledKernel>& reply) {
  if (!reply) {
    const Error& error = reply.error();
    return to_bytes({{"code", to_string(error.code)},
                     {"message", error.message},
                     {"hint", error.hint},
                     {"detail", error.detail}});
  }
  const auto& [binary, time] = *reply;
  const auto* first = reinterpret_cast<const std::uint8_t*>(binary.bytes.data());
  Json json{{"bytes", Json::binary(Octets(first, first + binary.bytes.size()))},
            {"time", {{"total", time.total}}}};
  if (binary.usage) json["usage"] = usage_json(*binary.usage);
  if (time.cpu) json["time"]["cpu"] = *time.cpu;
  if (time.phases)
    json["time"]["phases"] = {time.phases->front_end, time.phases->optimizer,
                              time.phases->assembler};
  return to_bytes(json);
}

std::optional<Result<CompiledKernel>> decode_reply(std::span<const std::byte> bytes,
                                                   const KernelSource& source) {
  return read_message(bytes, [&](const Json& json) -> Result<CompiledKernel> {
    if (json.contains("code"))
      return fail(Stage::kCompile, code_named(json["code"].get<std::string>()), json.at("message"),
                  json.at("hint"), json.at("detail"));
    const Octets& octets = json.at("bytes").get_binary();
    const auto* first = reinterpret_cast<const std::byte*>(octets.data());
    KernelBinary binary{.entry = source.entry,
                        .target = source.target,
                        .bytes = {first, first + octets.size()},
                        .usage = std::nullopt};
    if (json.contains("usage")) binary.usage = usage_of(json["usage"]);
    return CompiledKernel{std::move(binary), time_of(json.at("time"))};
  });
}

}  // namespace moejit::compiler
