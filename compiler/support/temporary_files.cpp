// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/temporary_files.h"

#include "compiler/support/digest.h"
#include "compiler/support/file.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

namespace moejit {
namespace {

constexpr std::int64_t kHourSeconds = 3600;
constexpr std::int64_t kDaySeconds = 24 * kHourSeconds;

// Returns eight digits for this system; empty if it does not tell.
const std::string& this_system() {
  static const std::string name = [] {
    const auto boot = read_text_file("/proc/sys/kernel/random/boot_id");
    std::array<char, 64> space{};
    const ssize_t length = ::readlink("/proc/self/ns/pid", space.data(), space.size());
    if (!boot || length <= 0) return std::string();
    return sha256(*boot + std::string(space.data(), static_cast<std::size_t>(length)))
        .hex()
        .substr(0, 8);
  }();
  return name;
}

}  // namespace

std::string random_hex() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    bytes = {};  // O_EXCL still keeps two writers apart
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string temporary_name() {
  const std::string& system = this_system();
  return fmt::format("{}-{}-{}", system.empty() ? "unknown" : system, ::getpid(), random_hex());
}

bool is_stale_temporary(std::string_view name, std::int64_t age_seconds) {
  const std::size_t first = name.find('-');
  const std::size_t second = name.find('-', first == std::string_view::npos ? first : first + 1);
  pid_t pid = 0;
  if (second != std::string_view::npos)
    std::from_chars(name.data() + first + 1, name.data() + second, pid);
  if (pid <= 0 || this_system().empty() || name.substr(0, first) != this_system())
    return age_seconds > kHourSeconds;
  const bool is_alive = ::kill(pid, 0) == 0 || errno != ESRCH;
  return !is_alive || age_seconds > kDaySeconds;
}

}  // namespace moejit
