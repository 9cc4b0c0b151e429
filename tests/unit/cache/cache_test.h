// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace moejit::cache {

// The key of the entries that tests make.
inline const Digest kKey = sha256("key");

// A private folder, and a collector of warnings.
class CacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "moejit-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    // Children of other users have to get to what is below.
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string root() const { return (folder_ / "cache").string(); }
  std::filesystem::path path_of(const Digest& key) const {
    const std::string hex = key.hex();
    return folder_ / "cache" / "v2" / hex.substr(0, 2) / hex.substr(2);
  }
  std::unique_ptr<KernelCache> open() {
    auto cache = KernelCache::open(
        root(), [this](std::string_view message) { warnings_.emplace_back(message); });
    EXPECT_TRUE(cache) << to_string(cache.error());
    return cache ? std::move(*cache) : nullptr;
  }
  static std::vector<std::byte> payload(size_t bytes, unsigned seed = 1) {
    std::vector<std::byte> result(bytes);
    for (std::byte& byte : result)
      byte = static_cast<std::byte>((seed = seed * 1664525u + 7u) >> 24);
    return result;
  }
  static size_t files_in(const std::filesystem::path& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }
  // Runs in another process, without the rights of root; true where the body returned true.
  static bool unprivileged(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(2);
      ::_exit(body() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  std::filesystem::path folder_;
  std::vector<std::string> warnings_;
};

}  // namespace moejit::cache
