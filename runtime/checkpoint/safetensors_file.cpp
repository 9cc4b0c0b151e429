// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/safetensors_file.h"

#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "compiler/support/nearest_name.h"
#include "runtime/checkpoint/shard_set.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

namespace moejit::checkpoint {
namespace {

using runtime::HostTensor;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kSniffedBytes = 64;  // enough to recognize another kind of file

tl::unexpected<Error> file_error(ErrorCode code, const std::string& path, std::string_view what) {
  return fail(Stage::kFile, code, fmt::format("{}: {}", path, what));
}

// Reads exactly the bytes at `offset`. Fails if the file ends too soon, which happens only if
// another process shortens it meanwhile.
Result<void> read_at(int fd, const std::string& path, int64_t offset,
                     std::span<std::byte> destination) {
  while (!destination.empty()) {
    const ssize_t got = ::pread(fd, destination.data(), destination.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(ErrorCode::kFileRead, path, errno_text(errno));
    if (got == 0)
      return file_error(ErrorCode::kInvalidFile, path,
                        fmt::format("ends at byte {}, in the middle of its data", offset));
    destination = destination.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return {};
}

Result<int64_t> file_bytes(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return file_error(ErrorCode::kFileRead, path, errno_text(errno));
  if (S_ISDIR(status.st_mode))
    return file_error(ErrorCode::kFileNotFound, path, "is a folder, wanted a safetensors file");
  if (!S_ISREG(status.st_mode))
    return file_error(ErrorCode::kFileNotFound, path,
                      "is not a regular file, wanted a safetensors file");
  return status.st_size;
}

Result<std::string> read_header(const FileDescriptor& file, const std::string& path, int64_t size) {
  if (size < kLengthBytes)
    return file_error(
        ErrorCode::kInvalidFile, path,
        fmt::format("has {} bytes, too few for the length of a safetensors header", size));
  std::string first(static_cast<size_t>(std::min(size, kSniffedBytes)), '\0');
  MOEJIT_TRY(read_at(file.get(), path, 0, std::as_writable_bytes(std::span(first))));
  if (const auto kind = foreign_kind(first))
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: seems to be {}, wanted a safetensors file", path, kind->what),
                std::string(kind->hint));
  uint64_t length = 0;
  static_assert(sizeof(length) == kLengthBytes);
  std::memcpy(&length, first.data(), sizeof(length));
  if (length > static_cast<uint64_t>(kLongestSafetensorsHeader))
    return file_error(ErrorCode::kInvalidFile, path,
                      fmt::format("claims a header of {} bytes, at most {} are allowed: not a "
                                  "safetensors file?",
                                  length, kLongestSafetensorsHeader));
  if (length > static_cast<uint64_t>(size - kLengthBytes))
    return file_error(ErrorCode::kInvalidFile, path,
                      fmt::format("claims a header of {} bytes, but the file has only {}: "
                                  "truncated?",
                                  length, size));
  std::string header(length, '\0');
  MOEJIT_TRY(read_at(file.get(), path, kLengthBytes, std::as_writable_bytes(std::span(header))));
  return header;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  result.path_ = escape_for_message(path, 4096);
  // Without O_NONBLOCK, opening a pipe would wait for its other end.
  result.file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!result.file_)
    return fail(Stage::kFile, ErrorCode::kFileNotFound,
                fmt::format("cannot open {}: {}", result.path_, errno_text(errno)));
  MOEJIT_TRY_ASSIGN(const int64_t size, file_bytes(result.file_, result.path_));
  MOEJIT_TRY_ASSIGN(const std::string header, read_header(result.file_, result.path_, size));
  const int64_t data_offset = kLengthBytes + static_cast<int64_t>(header.size());
  MOEJIT_TRY_ASSIGN(result.entries_, parse_safetensors_header(header, result.path_, data_offset,
                                                              size - data_offset));
  return result;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &SafetensorsEntry::name);
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Result<const SafetensorsEntry*> SafetensorsFile::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return entry;
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : entries_) names.push_back(entry.name);
  const std::string_view nearest = nearest_name(name, names);
  return fail(Stage::kFile, ErrorCode::kMissingTensor,
              fmt::format("{}: tensor \"{}\" is missing", path_, name),
              nearest.empty() ? "" : fmt::format("the file has {}", quote_for_message(nearest)));
}

Result<void> SafetensorsFile::read_into(const SafetensorsEntry& entry,
                                        std::span<std::byte> destination,
                                        int64_t byte_offset) const {
  const auto wanted = static_cast<int64_t>(destination.size());
  if (byte_offset < 0 || byte_offset > entry.bytes || wanted > entry.bytes - byte_offset)
    return fail(Stage::kFile, ErrorCode::kInternal,
                fmt::format("{}: {} bytes from byte {} of tensor {}, which has {}", path_, wanted,
                            byte_offset, entry.name, entry.bytes));
  return read_at(file_.get(), path_, entry.offset + byte_offset, destination);
}

Result<HostTensor> SafetensorsFile::read(const SafetensorsEntry& entry) const {
  if (!entry.dtype)
    return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                fmt::format("{}: tensor {} has the dtype {}, which moejit does not compute with",
                            path_, quote_for_message(entry.name), entry.dtype_name));
  HostTensor tensor{*entry.dtype, entry.shape, {}};
  tensor.bytes.resize(static_cast<size_t>(entry.bytes));
  MOEJIT_TRY(read_into(entry, tensor.bytes));
  return tensor;
}

namespace {

using runtime::TensorMap;

std::vector<TensorMap::const_pointer> in_file_order(const TensorMap& tensors) {
  std::vector<TensorMap::const_pointer> order;
  for (const auto& named : tensors) order.push_back(&named);
  std::ranges::stable_sort(order, std::greater<>(), [](TensorMap::const_pointer named) {
    return compiler::size_bytes(named->second.dtype);
  });
  return order;
}

}  // namespace

std::string safetensors_header(const TensorMap& tensors,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const TensorMap::const_pointer named : in_file_order(tensors)) {
    const HostTensor& tensor = named->second;
    header[named->first] = {{"dtype", compiler::to_string(tensor.dtype)},
                            {"shape", tensor.shape},
                            {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string json = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + json;
}

Result<void> write_safetensors(const std::string& path, const TensorMap& tensors,
                               const std::map<std::string, std::string>& metadata) {
  const std::string header = safetensors_header(tensors, metadata);
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(header))};
  for (const TensorMap::const_pointer named : in_file_order(tensors))
    pieces.emplace_back(named->second.bytes);
  return write_file(path, pieces);
}

Result<void> check_writable(const std::string& path) {
  const auto cannot = [&](std::string_view why) {
    return fail(Stage::kFile, ErrorCode::kFileWrite, fmt::format("cannot write {}: {}", path, why));
  };
  std::error_code error;
  if (path.empty()) return cannot("the name is empty");
  if (std::filesystem::is_directory(path, error)) return cannot("it is a folder");
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!std::filesystem::is_directory(folder, error))
    return cannot(fmt::format("there is no folder {}", folder.string()));
  if (::access(folder.c_str(), W_OK) != 0) return cannot(errno_text(errno));
  return {};
}

}  // namespace moejit::checkpoint
