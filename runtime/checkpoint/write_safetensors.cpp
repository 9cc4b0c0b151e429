// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/write_safetensors.h"

#include "compiler/support/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace moejit::checkpoint {
namespace {

using runtime::HostTensor;
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
