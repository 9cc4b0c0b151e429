// SPDX-License-Identifier: Apache-2.0
#include "compiler/worker/messages.h"

#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace moejit::compiler {
namespace {

using Json = nlohmann::json;
using Octets = std::vector<std::uint8_t>;

std::vector<std::byte> to_bytes(const Json& json) {
  const Octets octets = Json::to_cbor(json);
  const auto* first = reinterpret_cast<const std::byte*>(octets.data());
  return {first, first + octets.size()};
}

// Whether no array or object is deeper in others than in any message: reading takes stack for each
// level, and a program that is no worker may have written anything.
bool is_shallow(std::span<const std::byte> bytes) {
  struct Depth final : Json::json_sax_t {
    bool enter() { return ++depth <= 4; }
    bool leave() { return --depth, true; }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool key(string_t&) override { return true; }
    bool start_object(std::size_t) override { return enter(); }
    bool end_object() override { return leave(); }
    bool start_array(std::size_t) override { return enter(); }
    bool end_array() override { return leave(); }
    bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
      return false;
    }
    int depth = 0;
  } depth;
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return Json::sax_parse(first, first + bytes.size(), &depth, Json::input_format_t::cbor);
}

// What `read` makes of the message; none where it is malformed or lacks something.
template <typename Function>
auto read_message(std::span<const std::byte> bytes, const Function& read)
    -> std::optional<decltype(read(Json{}))> {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  try {
    if (!is_shallow(bytes)) return std::nullopt;
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

Json error_json(const Error& error) {
  return {{"code", to_string(error.code)},
          {"message", error.message},
          {"hint", error.hint},
          {"detail", error.detail}};
}

Error error_of(const Json& json) {
  return {Stage::kCompile, code_named(json.at("code").get<std::string>()), json.at("message"),
          json.at("hint"), json.at("detail")};
}

Json usage_json(const ResourceUsage& usage) {
  return {usage.registers,         usage.static_shared_bytes, usage.stack_bytes,
          usage.spill_store_bytes, usage.spill_load_bytes,    usage.code_bytes};
}

// nlohmann takes any number for any other.
std::int32_t count_of(const Json& json) {
  const std::int64_t count = json.is_number_integer() ? json.get<std::int64_t>() : -1;
  if (count < 0 || count > std::numeric_limits<std::int32_t>::max())
    throw std::out_of_range("no count");  // as where a field is missing
  return static_cast<std::int32_t>(count);
}

ResourceUsage usage_of(const Json& json) {
  return {.registers = count_of(json.at(0)),
          .static_shared_bytes = count_of(json.at(1)),
          .stack_bytes = count_of(json.at(2)),
          .spill_store_bytes = count_of(json.at(3)),
          .spill_load_bytes = count_of(json.at(4)),
          .code_bytes = count_of(json.at(5))};
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
  if (!reply) return to_bytes(error_json(reply.error()));
  const auto& [binary, time, loss] = *reply;
  const auto* first = reinterpret_cast<const std::uint8_t*>(binary.bytes.data());
  Json json{{"bytes", Json::binary(Octets(first, first + binary.bytes.size()))},
            {"time", {{"total", time.total}}}};
  if (binary.usage) json["usage"] = usage_json(*binary.usage);
  if (time.cpu) json["time"]["cpu"] = *time.cpu;
  if (time.phases)
    json["time"]["phases"] = {time.phases->front_end, time.phases->optimizer,
                              time.phases->assembler};
  if (loss) json["loss"] = error_json(*loss);
  return to_bytes(json);
}

std::optional<Result<CompiledKernel>> decode_reply(std::span<const std::byte> bytes,
                                                   const KernelSource& source) {
  return read_message(bytes, [&](const Json& json) -> Result<CompiledKernel> {
    if (json.contains("code")) return tl::make_unexpected(error_of(json));
    const Octets& octets = json.at("bytes").get_binary();
    const auto* first = reinterpret_cast<const std::byte*>(octets.data());
    KernelBinary binary{.entry = source.entry,
                        .target = source.target,
                        .bytes = {first, first + octets.size()},
                        .usage = std::nullopt};
    if (json.contains("usage")) binary.usage = usage_of(json["usage"]);
    CompiledKernel compiled{std::move(binary), time_of(json.at("time"))};
    if (json.contains("loss")) compiled.loss = error_of(json["loss"]);
    return compiled;
  });
}

}  // namespace moejit::compiler
