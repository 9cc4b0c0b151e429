// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/exhausted.h"

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

namespace moejit {

std::string hint_for_errno(int error) {
  switch (error) {
    case EAGAIN:
      return "raise the number of processes and threads: ulimit -u, pids of the container";
    case EMFILE: return "raise the number of files that a process may have open: ulimit -n";
    case ENFILE: return "too many files are open on this machine: sysctl fs.file-max";
    case ENOMEM: return "the host has no memory left, or a container's limit is reached";
    case ENOSPC:
    case EDQUOT: return "make room, or set TMPDIR and MOEJIT_CACHE_DIR to where there is some";
    default: return {};
  }
}

std::optional<Error> exhausted(Stage stage, const std::exception& exception) {
  const auto error = [stage](std::string message, std::string hint) {
    return Error{.stage = stage,
                 .code = ErrorCode::kOutOfMemory,
                 .message = std::move(message),
                 .hint = std::move(hint),
                 .detail = {}};
  };
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr ||
      dynamic_cast<const std::length_error*>(&exception) != nullptr)
    return error("the host has no memory left", {});
  const auto* const failure = dynamic_cast<const std::system_error*>(&exception);
  if (failure == nullptr || failure->code().category() != std::generic_category()) return {};
  const int number = failure->code().value();
  // The standard library starts threads and nothing else by calls that end so.
  if (number == EAGAIN)
    return error("the system starts no more threads: " + failure->code().message(),
                 hint_for_errno(number));
  const std::string hint = hint_for_errno(number);
  return hint.empty() ? std::nullopt
                      : std::optional(error(
                            "a call of the system failed: " + failure->code().message(), hint));
}

}  // namespace moejit
