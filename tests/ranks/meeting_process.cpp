// SPDX-License-Identifier: Apache-2.0
// A rank of a group that brings a file in memory instead of a GPU's:
//   meeting_process PATH RANK RANKS DEADLINE_MS [field=value...]
// Its files say who it is. It says what becomes of it, a line each, and waits for a line before it
// goes on: "met 01 MS" (whose files it has), then "done MS"; or "failed MS CODE SENTENCE". The line
// "fail" makes it fail where it maps what it has met. In the end it says how many files it has
// open more than in the beginning.
#include "runtime/group/rendezvous.h"
#include "tests/support/child_process.h"

#include <array>
#include <chrono>
#include <fmt/core.h>
#include <iostream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

using runtime::Introduction;
using runtime::Rendezvous;
using runtime::RendezvousPlace;
using Clock = std::chrono::steady_clock;

Clock::time_point began;

int64_t passed_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
}

void tell(const std::string& line) { std::cout << line << std::endl; }

std::string told() {
  std::string line;
  std::getline(std::cin, line);
  return line;
}

FileDescriptor file_of(char rank) {
  FileDescriptor file(::memfd_create("rank", MFD_CLOEXEC));
  const std::array<char, 1> bytes = {rank};
  write_all(file.get(), std::as_bytes(std::span(bytes)));
  return file;
}

// Returns what the file of a rank says.
char said_by(const runtime::MetRank& rank) {
  char said = '-';
  return ::pread(rank.file.get(), &said, 1, 0) == 1 ? said : '-';
}

void meet(const RendezvousPlace& place, const Introduction& own) {
  const FileDescriptor file = file_of(static_cast<char>('0' + own.rank));
  began = Clock::now();
  const auto fail = [](const Error& error) {
    tell(fmt::format("failed {} {} {}", passed_ms(), to_string(error.code), error.message));
  };
  auto met = Rendezvous::join(place, own, file);
  if (!met) return fail(met.error());
  std::string of;
  for (const runtime::MetRank& rank : met->ranks())
    of += rank.bytes == own.bytes ? said_by(rank) : '?';
  tell(fmt::format("met {} {}", of, passed_ms()));
  Result<void> mapped;
  if (told() == "fail")
    mapped = moejit::fail(Stage::kLoad, ErrorCode::kUnsupported, "no link joins the GPUs");
  const Result<void> finished = met->finish(mapped);
  if (!finished) return fail(finished.error());
  tell(fmt::format("done {}", passed_ms()));
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  using namespace moejit;
  if (argc < 5) return 2;
  runtime::Introduction own{.rank = std::stoi(argv[2]), .ranks = std::stoi(argv[3]), .bytes = 4096};
  for (int i = 5; i < argc; ++i) {
    const std::string field = argv[i];
    if (field.starts_with("gpu="))
      own.gpu = field.substr(4);
    else
      own.identity.push_back(field);
  }
  const int before = testing::open_files();
  testing::meet({.path = argv[1], .deadline_ms = std::stoll(argv[4])}, own);
  testing::tell(fmt::format("files {}", testing::open_files() - before));
  return 0;
}
