// SPDX-License-Identifier: Apache-2.0
#include "compiler/reproducer.h"

#include "compiler/compiler.h"
#include "compiler/support/file.h"
#include "compiler/support/json_text.h"
#include "templates/embedded_templates.h"

#include <filesystem>
#include <fmt/core.h>
#include <system_error>

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

Result<void> write_below(const fs::path& folder, const fs::path& name, std::string_view text) {
  const fs::path path = folder / name;
  std::error_code ignored;  // writing the file fails for the same reason
  fs::create_directories(path.parent_path(), ignored);
  return write_file(path.string(), text);
}

std::string report_of(const KernelSource& source, const Error& error) {
  Json report{{"moejit", MOEJIT_VERSION},
              {"entry", source.entry},
              {"target", to_string(source.target)},
              {"toolchain", Json::array()},
              {"code", to_string(error.code)},
              {"message", error.message},
              {"detail", error.detail}};
  if (const auto fields = toolchain_identity(source)) report["toolchain"] = *fields;
  return report.dump(2) + "\n";
}

Result<void> write_reproducer(const KernelSource& source, const fs::path& folder,
                              const Error& error) {
  MOEJIT_TRY_ASSIGN(const auto headers,
                    templates::include_closure(source.text, header_overlays(source.target)));
  for (const templates::IncludedFile& header : headers)
    MOEJIT_TRY(write_below(folder, header.include_name, header.file->text));
  MOEJIT_TRY(write_below(folder, "kernel.cu", source.text));
  return write_below(folder, "reproducer.json", report_of(source, error));
}

}  // namespace

void add_reproducer(const KernelSource& source, const std::string& folder, Error& error) {
  const fs::path path = fs::path(folder) / source.entry;
  const auto written = write_reproducer(source, path, error);
  const std::string note =
      written ? fmt::format("what reproduces it is in {}", path.string())
              : fmt::format("a reproducer could not be written: {}", written.error().message);
  error.hint += (error.hint.empty() ? "" : "; ") + note;
}

}  // namespace moejit::compiler
