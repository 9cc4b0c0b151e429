// SPDX-License-Identifier: Apache-2.0
// A rank whose GPU is one of the fake libcuda:
//   group_process PATH RANK RANKS DEADLINE_MS GPU [max_tokens]
// It opens a group and says "open MEMORY ALLOCATED MS" or "failed CODE SENTENCE", then does what it
// is told, a line for each:
//   write R V   fills the first page of rank R's memory with V: "wrote"
//   read R      "read V", the first byte of rank R's memory
//   at R        "at ADDRESS", where the memory of rank R is
//   reopen MS   "reopened" or "failed CODE SENTENCE"
//   reset       "reset" or "failed CODE SENTENCE"
//   fork        "forked CODE SENTENCE", what a child's use of the group is
//   close       lets go of the group and of the device: "closed FILES" that it still has open
#include "compiler/compiler.h"
#include "runtime/group.h"
#include "runtime/group/group_state.h"
#include "tests/support/child_process.h"

#include <array>
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

using runtime::Group;

constexpr int64_t kPage = 4096;

void tell(const std::string& line) { std::cout << line << std::endl; }

std::string text_of(const Error& error) {
  return fmt::format("{} {} ({})", to_string(error.code), error.message, error.hint);
}

void tell(const Result<void>& result, const std::string& success) {
  tell(result ? success : "failed " + text_of(result.error()));
}

compiler::Plan plan_of(int32_t rank, int32_t ranks, int64_t max_tokens) {
  compiler::Layer layer{.name = "opened",
                        .experts = 24,
                        .top_k = 2,
                        .hidden = 144,
                        .intermediate = 80,
                        .splits_alignment = 16,
                        .max_tokens = max_tokens,
                        .dispatch = compiler::Dispatch::kFp8};
  layer.expert_parallel.ranks = ranks;
  layer.local_experts = layer.experts / ranks;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return *compiler::plan_layer(layer, {}, {.rank = rank});
}

// Uses the group in a child, and returns what that is told.
std::string forked(Group& group) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  if (const pid_t child = ::fork(); child == 0) {
    std::string all;
    const auto add = [&](const Result<void>& result) {
      all += result ? "nothing;" : text_of(result.error()) + ";";
    };
    const auto status = group.status();
    add(status ? Result<void>() : tl::make_unexpected(status.error()));
    add(group.clear_status(nullptr));
    add(group.reset());
    add(group.reopen({.path = "/tmp/none", .deadline_ms = 10}));
    write_all(ends[1], std::as_bytes(std::span(all)));
    ::_exit(0);
  } else {
    ::close(ends[1]);
    std::vector<std::byte> said;
    read_all(ends[0], 1 << 20, said);
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return {reinterpret_cast<const char*>(said.data()), said.size()};
  }
}

class Rank {
 public:
  Rank(runtime::Device& device, std::unique_ptr<Group> group, std::string path)
      : device_(device), group_(std::move(group)), path_(std::move(path)) {}

  void obey(std::istringstream line) {
    std::string what;
    line >> what;
    std::size_t number = 0;
    line >> number;
    if (what == "write") {
      int value = 0;
      line >> value;
      Result<void> filled = device_.fill(base(number), std::byte(value), kPage, nullptr);
      if (filled) filled = device_.synchronize(nullptr);
      tell(filled, "wrote");
    } else if (what == "read") {
      std::byte value{};
      const Result<void> read = device_.copy_to_host(&value, base(number), 1);
      tell(read, fmt::format("read {}", static_cast<int>(value)));
    } else if (what == "at") {
      tell(fmt::format("at {}", fmt::ptr(base(number))));
    } else if (what == "reopen") {
      tell(group_->reopen({.path = path_, .deadline_ms = static_cast<int64_t>(number)}),
           "reopened");
    } else if (what == "reset") {
      tell(group_->reset(), "reset");
    } else if (what == "fork") {
      tell("forked " + forked(*group_));
    }
  }

 private:
  std::byte* base(std::size_t rank) const { return group_->state()->bases[rank]; }

  runtime::Device& device_;
  std::unique_ptr<Group> group_;
  std::string path_;
};

void run(const std::string& path, const compiler::Plan& plan, int64_t deadline_ms, int32_t gpu) {
  using Clock = std::chrono::steady_clock;
  auto device = runtime::open_cuda_device(gpu);
  if (!device) return tell("failed " + text_of(device.error()));
  const auto began = Clock::now();
  auto group = Group::open(plan, **device, {.path = path, .deadline_ms = deadline_ms});
  if (!group) return tell("failed " + text_of(group.error()));
  const std::chrono::duration<double, std::milli> took = Clock::now() - began;
  tell(fmt::format("open {} {} {:.1f}", (*group)->memory_bytes(), (*group)->allocated_bytes(),
                   took.count()));
  Rank rank(**device, std::move(*group), path);
  for (std::string line; std::getline(std::cin, line) && line != "close";)
    rank.obey(std::istringstream(line));
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  using namespace moejit::testing;
  if (argc < 6) return 2;
  // Opens what a process has open once: the driver.
  auto device = moejit::runtime::open_cuda_device(std::stoi(argv[5]));
  const int before = open_files();
  run(argv[1], plan_of(std::stoi(argv[2]), std::stoi(argv[3]), argc > 6 ? std::stoll(argv[6]) : 12),
      std::stoll(argv[4]), std::stoi(argv[5]));
  if (device) device->reset();
  tell(fmt::format("closed {}", open_files() - before));
  return 0;
}
