// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/file_kind.h"

#include <algorithm>
#include <array>

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

}  // namespace moejit::checkpoint
