// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "runtime/checkpoint/shard_set.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/core.h>
#include <map>

namespace moejit::checkpoint {
namespace {

constexpr std::string_view kSaveAsSafetensors =
    "save the model as safetensors: save_pretrained of transformers does";

struct Signature {
  std::string_view bytes;
  FileKind kind;
};

// Files that users mistake for safetensors files, by their first bytes.
constexpr std::array kSignatures = {
    Signature{"version https://git-lfs",
              {"a Git LFS pointer instead of the data", "fetch the data: git lfs pull"}},
    Signature{"PK\x03\x04", {"a ZIP archive, as torch.save writes it", kSaveAsSafetensors}},
    Signature{"\x80\x02",
              {"a Python pickle, as old versions of torch.save write it", kSaveAsSafetensors}},
    Signature{"GGUF", {"a GGUF file", "give the safetensors files that it was made from"}},
    Signature{"\x93NUMPY", {"a NumPy file", "save the array with safetensors.numpy.save_file"}},
    Signature{"\x89HDF", {"an HDF5 file", kSaveAsSafetensors}},
    Signature{"\x7f"
              "ELF",
              {"a program or library", ""}},
    Signature{"\x1f\x8b", {"a gzip archive", "unpack it"}},
    Signature{"\x28\xb5\x2f\xfd", {"a Zstandard archive", "unpack it"}},
    Signature{"<!", {"a web page", "download the file itself, not the page that shows it"}},
    Signature{"<html", {"a web page", "download the file itself, not the page that shows it"}},
};

bool is_text(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char byte) {
    const auto code = static_cast<unsigned char>(byte);
    return code >= 0x20 ? code != 0x7f : byte == '\n' || byte == '\r' || byte == '\t';
  });
}

}  // namespace

std::optional<FileKind> foreign_kind(std::string_view first_bytes) {
  // If the upper half of a header's length is 0, this is a safetensors file. \x80\x02 may begin a
  // pickle, or a header of 640 bytes.
  if (first_bytes.size() >= 8 && first_bytes.substr(4, 4) == std::string_view("\0\0\0\0", 4))
    return std::nullopt;
  for (const Signature& signature : kSignatures)
    if (first_bytes.starts_with(signature.bytes)) return signature.kind;
  // If the first eight bytes are letters, the file is text: as a header's length they would mean
  // petabytes.
  if (first_bytes.size() < 8 || !is_text(first_bytes)) return std::nullopt;
  const size_t begin = first_bytes.find_first_not_of(" \n\r\t");
  if (begin != std::string_view::npos && (first_bytes[begin] == '{' || first_bytes[begin] == '['))
    return FileKind{"JSON text",
                    "--weights takes safetensors files, a folder of them, or their index, whose "
                    "name ends in .json"};
  return FileKind{"text", ""};
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".safetensors.index.json";
constexpr std::string_view kShardEnding = ".safetensors";

tl::unexpected<Error> invalid_index(const std::string& path, const std::string& what,
                                    std::string hint =
                                        "download the index again, or give the "
                                        "shards themselves") {
  return fail(Stage::kFile, ErrorCode::kInvalidFile,
              fmt::format("{}: {}", escape_for_message(path, 4096), what), std::move(hint));
}

Result<ShardIndex> read_index(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(path));
  const std::string shown = escape_for_message(path, 4096);
  auto document = parse_json(text, {.source_name = shown, .stage = Stage::kFile, .max_depth = 8});
  if (!document) {
    Error error = std::move(document).error();
    error.code = ErrorCode::kInvalidFile;
    return tl::make_unexpected(std::move(error));
  }
  const JsonValue* map = nullptr;
  for (const JsonMember& member : document->root.members)
    if (member.key == "weight_map") map = &member.value;
  if (map == nullptr)
    return invalid_index(path, "has no weight_map, wanted the index of a checkpoint's shards",
                         "give safetensors files, their folder, or model.safetensors.index.json");
  if (map->kind != JsonKind::kObject)
    return invalid_index(path,
                         "$.weight_map is not an object of tensors and the files they are in");
  ShardIndex index{path, {}, {}};
  std::map<std::string_view, size_t> numbers;  // indices of the shards, by name
  const fs::path folder = fs::path(path).parent_path();
  for (const JsonMember& member : map->members) {
    const std::string place = json_path_of_member("$.weight_map", member.key);
    if (member.value.kind != JsonKind::kString)
      return invalid_index(path, fmt::format("{}: wanted the name of a file", place));
    if (!is_file_name(member.value.text))  // shards lie in the folder of their index
      return invalid_index(
          path, fmt::format("{}: got {}, wanted the name of a file in the same folder", place,
                            quote_for_message(member.value.text)));
    const auto [number, is_new] = numbers.emplace(member.value.text, index.shards.size());
    if (is_new) index.shards.push_back((folder / member.value.text).string());
    index.tensors.emplace_back(member.key, number->second);
  }
  return index;
}

// Returns the paths of a folder's files with this ending, sorted.
Result<std::vector<std::string>> files_ending_in(const std::string& folder,
                                                 std::string_view ending) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (std::string name = entry->path().filename().string(); name.ends_with(ending))
      found.push_back(std::move(name));
  if (error)
    return fail(Stage::kFile, ErrorCode::kFileRead,
                fmt::format("{}: {}", escape_for_message(folder, 4096), error.message()));
  std::ranges::sort(found);
  return found;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 3; ++i)
    text += (i == 0 ? "" : ", ") + escape_for_message(names[i], 200);
  return names.size() > 3 ? fmt::format("{} and {} more", text, names.size() - 3) : text;
}

// Returns the path of a folder's index or of its only shard. model.safetensors and its index come
// before other files.
Result<std::string> choose_in_folder(const std::string& folder) {
  const auto path_of = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  const auto ambiguous = [&](const std::vector<std::string>& names, std::string hint) {
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: the folder has {}, wanted one index or one safetensors file",
                            escape_for_message(folder, 4096), list_of(names)),
                std::move(hint));
  };
  for (const std::string_view ending : {kIndexEnding, kShardEnding}) {
    MOEJIT_TRY_ASSIGN(const std::vector<std::string> names, files_ending_in(folder, ending));
    const std::string usual = fmt::format("model{}", ending);
    if (std::ranges::find(names, usual) != names.end()) return path_of(usual);
    if (names.size() == 1) return path_of(names.front());
    if (!names.empty()) return ambiguous(names, "name the files instead of the folder");
  }
  return fail(Stage::kFile, ErrorCode::kFileNotFound,
              fmt::format("{}: the folder has neither a safetensors file nor an index of such",
                          escape_for_message(folder, 4096)),
              "give a folder with model.safetensors or model.safetensors.index.json");
}

}  // namespace

Result<ShardFiles> find_shard_files(const std::vector<std::string>& paths) {
  ShardFiles result;
  for (std::string path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      MOEJIT_TRY_ASSIGN(path, choose_in_folder(path));
    }
    if (!path.ends_with(".json")) {
      result.files.push_back(std::move(path));
      continue;
    }
    MOEJIT_TRY_ASSIGN(ShardIndex index, read_index(path));
    result.indexes.push_back(std::move(index));
  }
  return result;
}

}  // namespace moejit::checkpoint
