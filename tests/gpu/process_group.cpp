// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/process_group.h"

#include "moejit_device/params/status_bits.h"
#include "runtime/device.h"
#include "runtime/group.h"
#include "tests/gpu/group_case.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>

namespace moejit::testing {

std::string ProcessGroup::why_not(int32_t ranks) {
  const auto links = runtime::gpu_links();
  if (!links) return links.error().message;
  const auto count = static_cast<std::size_t>(ranks);
  if (links->size() < count) return fmt::format("wanted {} GPUs, got {}", ranks, links->size());
  for (std::size_t from = 0; from < count; ++from)
    for (std::size_t to = 0; to < count; ++to)
      if (from != to && !(*links)[from][to])
        return fmt::format("GPU {} does not reach GPU {}", from, to);
  return "";
}

ChildProcess ProcessGroup::start_rank(int32_t number) const {
  return ChildProcess({"/proc/self/exe", "--rank", std::to_string(number), std::to_string(ranks()),
                       (dir_ / "group").string(), dir_.path().string(),
                       is_large_ ? "large" : "small", std::to_string(timeout_ms_)});
}

void ProcessGroup::start() {
  for (int32_t number = 0; number < ranks(); ++number) ranks_.push_back(start_rank(number));
  for (int32_t number = 0; number < ranks(); ++number) EXPECT_EQ(hear(number), "device");
  say("open");
  for (int32_t number = 0; number < ranks(); ++number) expect_ready(number);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "group"));
}

void ProcessGroup::expect_ready(int32_t number) {
  const std::string line = hear(number);
  EXPECT_TRUE(line.starts_with("ready ")) << line;
  std::cout << "opened in " << line.substr(std::min<std::size_t>(6, line.size())) << " ms\n";
}

void ProcessGroup::say(const std::string& line) {
  for (int32_t number = 0; number < ranks(); ++number)
    if (number != dead_) rank(number).say(line);
}

// A kernel that nobody has compiled may take a minute.
std::string ProcessGroup::hear(int32_t number) {
  return rank(number).hear(300000).value_or("nothing");
}

Said ProcessGroup::heard_status(int32_t number) {
  const std::string line = hear(number);
  Said said;
  // NOLINTNEXTLINE(cert-err34-c): text of our own
  EXPECT_EQ(std::sscanf(line.c_str(), "status %u %lf", &said.status, &said.ms), 2) << line;
  return said;
}

void ProcessGroup::expect_all(const std::string& line, const std::string& answer) {
  say(line);
  for (int32_t number = 0; number < ranks(); ++number) {
    if (number == dead_) continue;
    EXPECT_EQ(hear(number), answer) << "rank " << number << ", " << line;
  }
}

void ProcessGroup::expect_run() {
  say("run");
  for (int32_t number = 0; number < ranks(); ++number)
    EXPECT_EQ(heard_status(number).status, 0U) << "rank " << number;
}

void ProcessGroup::expect_silent(int32_t survivor, int32_t silent) {
  const Said said = heard_status(survivor);
  EXPECT_NE(said.status & device::kStatusSilentRank, 0U);
  EXPECT_EQ(runtime::silent_ranks(said.status), std::to_string(silent)) << "rank " << survivor;
  EXPECT_LE(said.ms, static_cast<double>(timeout_ms_) + kSlackMs);
  std::cout << "time-out of " << timeout_ms_ << " ms: the call of rank " << survivor
            << " returned after " << said.ms << " ms\n";
  rank(survivor).say("alive");
  EXPECT_EQ(hear(survivor), "alive");
  rank(survivor).say("run");
  EXPECT_TRUE(hear(survivor).starts_with("failed invalid_state rank "));
}

void ProcessGroup::expect_bits() {
  expect_all("save", "saved");
  std::string why_not;
  const auto in_one = GroupCase::open(of_.layer, of_.tokens, why_not);
  ASSERT_NE(in_one, nullptr) << why_not;
  EXPECT_EQ(in_one->run(), std::vector<uint32_t>(of_.tokens.size()));
  in_one->expect_bits_of_one_rank();
  in_one->expect_files(dir_.path());
}

void ProcessGroup::kill(int32_t number) {
  rank(number).signal(SIGKILL);
  dead_ = number;
}

void ProcessGroup::replace(int32_t dead) {
  rank(dead).wait();
  std::vector<ChildProcess> with_fresh;
  for (int32_t number = 0; number < ranks(); ++number)
    with_fresh.push_back(number == dead ? start_rank(number) : std::move(rank(number)));
  ranks_.swap(with_fresh);
  EXPECT_EQ(hear(dead), "device");
  say("reopen");
  rank(dead).say("open");
  for (int32_t number = 0; number < ranks(); ++number)
    if (number == dead) {
      expect_ready(number);
    } else {
      EXPECT_EQ(hear(number), "done");
    }
  dead_ = -1;
}

int run_process_rank(char** arguments) {
  const auto tell = [](const std::string& line) { std::cout << line << std::endl; };
  const auto fail = [&](const Error& error) {
    tell("failed " + to_string(error));
    return 1;
  };
  auto rank = ProcessRank::open_device(std::stoi(arguments[0]));
  if (!rank) return fail(rank.error());
  tell("device");  // from here on no rank is slower than the others for reasons of its start
  std::string line;
  std::getline(std::cin, line);
  const bool is_large = std::string_view(arguments[4]) == "large";
  const Result<void> opened = (*rank)->open_group(process_layer(std::stoi(arguments[1]), is_large),
                                                  arguments[2], std::stoll(arguments[5]));
  if (!opened) return fail(opened.error());
  (*rank)->save_to(arguments[3]);
  tell(fmt::format("ready {:.1f}", (*rank)->open_ms()));
  while (std::getline(std::cin, line)) tell((*rank)->obey(line));
  return 0;
}

}  // namespace moejit::testing
