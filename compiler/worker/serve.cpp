// SPDX-License-Identifier: Apache-2.0
#include "compiler/compile_worker.h"
#include "compiler/kernel_key.h"
#include "compiler/nvrtc/compile.h"
#include "compiler/support/file.h"
#include "compiler/worker/messages.h"

#include <csignal>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace moejit::compiler {
namespace {

constexpr std::int64_t kLargestRequest = std::int64_t{64} << 20;

Result<CompiledKernel> answer(const WorkerRequest& request) {
  MOEJIT_TRY_ASSIGN(const KernelKey key, kernel_key(request.source));
  if (key.digest != request.key)
    return fail(
        Stage::kCompile, ErrorCode::kCompilerFault,
        fmt::format("kernel {}: the compile worker would make it with another moejit {} or "
                    "NVRTC (key {}) than asked for (key {})",
                    request.source.entry, MOEJIT_VERSION, key.digest.hex(), request.key.hex()),
        "let MOEJIT_COMPILE_WORKER name the program moejit of the same installation");
  return compile_with_nvrtc_and_time(request.source);
}

tl::unexpected<Error> no_message(std::string_view what) {
  return fail(Stage::kCommand, ErrorCode::kUsage, std::string(what),
              "moejit starts this command itself, see MOEJIT_COMPILE_WORKER");
}

}  // namespace

Result<void> serve_compile_worker(int parent) {
  // The process that asked may be gone already.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
    return no_message(fmt::format("process {} is not my parent", parent));
  // Text that a library prints must not get between the bytes of the answer.
  FileDescriptor output(dup(STDOUT_FILENO));
  if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return no_message("no standard output");
  std::vector<std::byte> bytes;
  if (const int error = read_all(STDIN_FILENO, kLargestRequest, bytes); error != 0)
    return no_message(fmt::format("reading the request: {}", errno_text(error)));
  const auto request = decode_request(bytes);
  if (!request) return no_message("standard input holds no request");
  if (const int error = write_all(output.get(), encode_reply(answer(*request))); error != 0)
    return no_message(fmt::format("writing the reply: {}", errno_text(error)));
  return {};
}

}  // namespace moejit::compiler
