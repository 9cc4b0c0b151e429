// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"
#include "runtime/engine.h"
#include "tests/fakes/fake_nvrtc.h"
#include "tests/flight/flight_kernels.h"
#include "tests/support/matchers.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace moejit::testing {

// The fake NVRTC for this process and those it starts. A process opens NVRTC once, so all tests of
// a program share the control record, which is cleared before each.
class FlightTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (control_ != nullptr) return;
    static const TempDir folder("flight-control");
    const std::string path = (folder / "control").string();
    ::setenv("MOEJIT_NVRTC", MOEJIT_FAKE_NVRTC, 1);
    ::setenv("FAKE_NVRTC_CONTROL", path.c_str(), 1);
    control_ = new MappedControl(path);
    control_path_ = path;
  }
  void SetUp() override { clear_control(); }

  static void clear_control() {
    // Nothing but numbers, and nobody else looks now.
    std::memset(static_cast<void*>(control_->operator->()), 0, sizeof(FakeNvrtcControl));
  }
  static MappedControl& control() { return *control_; }
  static const std::string& control_path() { return control_path_; }

  std::string cache_dir() const { return (dir_ / "cache").string(); }
  std::string run_dir() const { return (dir_ / "run").string(); }
  std::unique_ptr<runtime::Engine> engine(runtime::EngineOptions options = {}) {
    if (options.use_cache) options.cache_dir = cache_dir();
    if (options.run_dir.empty()) options.run_dir = run_dir();
    options.warn = [this](std::string_view message) { warnings_.emplace_back(message); };
    auto result = runtime::Engine::create(options);
    EXPECT_TRUE(succeeded(result));
    return std::move(*result);
  }

  TestDir dir_;
  std::vector<std::string> warnings_;

 private:
  static inline MappedControl* control_ = nullptr;
  static inline std::string control_path_;
};

}  // namespace moejit::testing
