// SPDX-License-Identifier: Apache-2.0
#include "compiler/worker/messages.h"

#include "compiler/worker/cbor.h"

#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <stdexcept>

namespace moejit::compiler {
namespace {

constexpr std::size_t kMaxMessageDepth = 4;  // of messages: reading takes memory for each level

// Returns what `read` makes of the message; none if it is malformed or incomplete.
template <typename Function>
auto read_message(std::span<const std::byte> bytes, const Function& read)
    -> std::optional<decltype(read(CborValues{}))> {
  const std::optional<CborValues> values = read_cbor(bytes, kMaxMessageDepth);
  if (!values) return std::nullopt;
  try {
    return read(*values);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // a value is missing, or is of another type
    return std::nullopt;
  }
}

const std::string& text_at(const CborValues& values, const std::string& path) {
  return std::get<std::string>(values.at(path));
}

double number_at(const CborValues& values, const std::string& path) {
  const CborValue& value = values.at(path);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
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

void write_error(CborWriter& to, const Error& error) {
  to.map(4).text("code").text(to_string(error.code)).text("message").text(error.message);
  to.text("hint").text(error.hint).text("detail").text(error.detail);
}

// Reads the error at `path`, which is "" or ends in a slash.
Error error_at(const CborValues& values, const std::string& path) {
  return {Stage::kCompile, code_named(text_at(values, path + "code")),
          text_at(values, path + "message"), text_at(values, path + "hint"),
          text_at(values, path + "detail")};
}

constexpr std::array kUsageMembers = {
    &ResourceUsage::registers,        &ResourceUsage::static_shared_bytes,
    &ResourceUsage::stack_bytes,      &ResourceUsage::spill_store_bytes,
    &ResourceUsage::spill_load_bytes, &ResourceUsage::code_bytes};

ResourceUsage usage_at(const CborValues& values, const std::string& path) {
  ResourceUsage usage;
  for (std::size_t i = 0; i < kUsageMembers.size(); ++i) {
    const auto count = std::get<std::int64_t>(values.at(path + "/" + std::to_string(i)));
    if (count < 0 || count > std::numeric_limits<std::int32_t>::max())
      throw std::out_of_range("no count");  // treated as if it were missing
    usage.*kUsageMembers[i] = static_cast<std::int32_t>(count);
  }
  return usage;
}

void write_time(CborWriter& to, const CompileTime& time) {
  to.map(1 + (time.cpu ? 1 : 0) + (time.phases ? 1 : 0)).text("total").number(time.total);
  if (time.cpu) to.text("cpu").number(*time.cpu);
  if (!time.phases) return;
  to.text("phases").array(3).number(time.phases->front_end);
  to.number(time.phases->optimizer).number(time.phases->assembler);
}

CompileTime time_at(const CborValues& values) {
  CompileTime time{
      .total = number_at(values, "time/total"), .cpu = std::nullopt, .phases = std::nullopt};
  if (values.contains("time/cpu")) time.cpu = number_at(values, "time/cpu");
  if (values.contains("time/phases"))
    time.phases = CompilePhases{.front_end = number_at(values, "time/phases/0"),
                                .optimizer = number_at(values, "time/phases/1"),
                                .assembler = number_at(values, "time/phases/2")};
  return time;
}

}  // namespace

std::vector<std::byte> encode_request(const WorkerRequest& request) {
  CborWriter to;
  to.map(4).text("entry").text(request.source.entry).text("text").text(request.source.text);
  to.text("target").text(to_string(request.source.target)).text("key").text(request.key.hex());
  return to.take();
}

std::optional<WorkerRequest> decode_request(std::span<const std::byte> bytes) {
  auto read = read_message(bytes, [](const CborValues& values) -> std::optional<WorkerRequest> {
    auto target = parse_target(text_at(values, "target"));
    auto key = Digest::from_hex(text_at(values, "key"));
    if (!target || !key) return std::nullopt;
    return WorkerRequest{.source = {.entry = text_at(values, "entry"),
                                    .text = text_at(values, "text"),
                                    .target = std::move(*target)},
                         .key = *key};
  });
  return read ? std::move(*read) : std::nullopt;
}

std::vector<std::byte> encode_reply(const Result<CompiledKernel>& reply) {
  CborWriter to;
  if (!reply) {
    write_error(to, reply.error());
    return to.take();
  }
  const auto& [binary, time, loss] = *reply;
  to.map(2 + (binary.usage ? 1 : 0) + (loss ? 1 : 0)).text("bytes").bytes(binary.bytes);
  to.text("time");
  write_time(to, time);
  if (binary.usage) {
    to.text("usage").array(kUsageMembers.size());
    for (const auto member : kUsageMembers) to.integer((*binary.usage).*member);
  }
  if (loss) write_error(to.text("loss"), *loss);
  return to.take();
}

std::optional<Result<CompiledKernel>> decode_reply(std::span<const std::byte> bytes,
                                                   const KernelSource& source) {
  return read_message(bytes, [&](const CborValues& values) -> Result<CompiledKernel> {
    if (values.contains("code")) return tl::make_unexpected(error_at(values, ""));
    const auto& octets = std::get<std::vector<std::uint8_t>>(values.at("bytes"));
    const auto* first = reinterpret_cast<const std::byte*>(octets.data());
    KernelBinary binary{.entry = source.entry,
                        .target = source.target,
                        .bytes = {first, first + octets.size()},
                        .usage = std::nullopt};
    if (values.contains("usage")) binary.usage = usage_at(values, "usage");
    CompiledKernel compiled{std::move(binary), time_at(values)};
    if (values.contains("loss")) compiled.loss = error_at(values, "loss/");
    return compiled;
  });
}

}  // namespace moejit::compiler
