// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/gpu/process_rank.h"
#include "tests/support/child_process.h"
#include "tests/support/matchers.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::testing {

// For the time that processes take to be heard of on a loaded machine.
constexpr double kSlackMs = 500.0;

// What a rank says of a call.
struct Said {
  uint32_t status = 0;
  double ms = 0.0;
};

// A group of as many processes as ranks, each of which is this executable again:
//   EXECUTABLE --rank RANK RANKS PATH FOLDER small|large TIMEOUT_MS
class ProcessGroup {
 public:
  explicit ProcessGroup(int32_t ranks, bool is_large = false, int64_t timeout_ms = 1000)
      : of_(process_layer(ranks, is_large)), is_large_(is_large), timeout_ms_(timeout_ms) {}

  // Returns nothing where as many GPUs reach each other, otherwise why not.
  static std::string why_not(int32_t ranks);

  int32_t ranks() const { return of_.layer.expert_parallel.ranks; }
  ChildProcess& rank(int32_t number) { return ranks_[static_cast<std::size_t>(number)]; }
  int64_t timeout_ms() const { return timeout_ms_; }

  // Starts all ranks, and waits until they have prepared the layer.
  void start();
  // Sends a line to all ranks that live.
  void say(const std::string& line);
  // Expects that all ranks say this to a line.
  void expect_all(const std::string& line, const std::string& answer);
  // Lets all ranks run once, and expects that each has status 0.
  void expect_run();
  // Expects that a survivor's call ends in time, that it tells of the rank that is silent, and that
  // it works but for calls.
  void expect_silent(int32_t survivor, int32_t silent);
  // Expects that the results of all ranks are what one process makes of the layer.
  void expect_bits();
  void kill(int32_t number);
  // Has a new process in the place of a rank that was killed, and opens the group again.
  void replace(int32_t dead);

  std::string hear(int32_t number);
  Said heard_status(int32_t number);

 private:
  ChildProcess start_rank(int32_t number) const;
  void expect_ready(int32_t number);

  ProcessLayer of_;
  bool is_large_;
  int64_t timeout_ms_;
  TestDir dir_;
  std::vector<ChildProcess> ranks_;
  int32_t dead_ = -1;
};

// Is a rank of a ProcessGroup: does what the lines of the standard input say, until it ends.
int run_process_rank(char** arguments);

}  // namespace moejit::testing
