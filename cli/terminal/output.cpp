// SPDX-License-Identifier: Apache-2.0

#include "cli/terminal/output.h"

#include "compiler/support/file.h"

#include <cerrno>
#include <filesystem>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace moejit::cli {

Result<void> check_output(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return {};
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
    return {};  // a device or a pipe, which is written in place
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  int error = 0;
  if (fs::is_directory(status))
    error = EISDIR;
  else if (!fs::exists(folder, ignored))
    error = ENOENT;
  else if (!fs::is_directory(folder, ignored))
    error = ENOTDIR;
  else if (::access(folder.c_str(), W_OK | X_OK) != 0)
    error = errno;
  if (error == 0) return {};
  return fail(Stage::kFile, ErrorCode::kFileWrite,
              fmt::format("cannot write {}: {}", path, errno_text(error)),
              error == ENOENT ? fmt::format("make the folder {} first", folder.string())
                              : "name a file in a folder that you may write to");
}

std::string json_output(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace moejit::cli
