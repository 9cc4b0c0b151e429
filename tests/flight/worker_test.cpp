// SPDX-License-Identifier: Apache-2.0
// Compiles in processes of their own, with the fake NVRTC: its crash, and how to reproduce it.
#include "tests/flight/flight_fixture.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

namespace moejit::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class WorkerTest : public FlightTest {};

TEST_F(WorkerTest, GivesWhatThisProcessWouldMake) {
  const auto inside = engine({.use_cache = false});
  const auto outside = engine({.use_cache = false, .compile_worker = MOEJIT_TOOL});
  const auto made = outside->obtain(flight_kernel(3));
  ASSERT_TRUE(succeeded(made));
  const auto wanted = inside->obtain(flight_kernel(3));
  ASSERT_TRUE(succeeded(wanted));
  EXPECT_EQ(*made->binary, *wanted->binary);
  ASSERT_TRUE(made->compile_time.has_value());
  EXPECT_GT(made->compile_time->total, 0.0);
}

TEST_F(WorkerTest, SurvivesACrashAndTriesAgain) {
  control()->compiles_to_go = 1;
  const auto one = engine({.compile_worker = MOEJIT_TOOL});
  const auto crashed = one->obtain(flight_kernel(3));
  ASSERT_FALSE(crashed);
  EXPECT_EQ(crashed.error().code, ErrorCode::kCompilerFault);
  EXPECT_EQ(crashed.error().message, "kernel moejit_flight_3: the compile worker " MOEJIT_TOOL
                                     " was ended by signal 6 (SIGABRT)");
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(3))));
  EXPECT_EQ(control()->begun, 2);
}

TEST_F(WorkerTest, HandsOnTheErrorsOfNvrtc) {
  control()->result = 6;
  const auto inside = engine({.use_cache = false})->obtain(flight_kernel(3));
  const auto outside =
      engine({.use_cache = false, .compile_worker = MOEJIT_TOOL})->obtain(flight_kernel(3));
  ASSERT_FALSE(inside);
  ASSERT_FALSE(outside);
  EXPECT_EQ(to_string(outside.error()), to_string(inside.error()));
}

TEST_F(WorkerTest, IsEndedWhenNobodyWaits) {
  control()->microseconds = 20'000'000;
  auto one = engine({.compile_worker = MOEJIT_TOOL});
  std::stop_source stop;
  std::jthread canceller([&] {
    while (control()->begun == 0) std::this_thread::sleep_for(milliseconds(1));
    stop.request_stop();
  });
  const auto stopped = one->obtain(flight_kernel(3), {.stop = stop.get_token()});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kInterrupted);
  // The next one has the lock and the worker of its own.
  control()->microseconds = 0;
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(3))));
  one.reset();  // waits for workers that live
  EXPECT_EQ(control()->begun, 2);
  EXPECT_EQ(control()->finished, 1);
}

TEST_F(WorkerTest, RefusesAWorkerThatWouldMakeAnotherKernel) {
  const std::string program = (dir_ / "worker").string();
  ASSERT_TRUE(write_file(program,
                         "#!/bin/sh\nLC_ALL=C sed 's/kernel 3/kernel 4/' > $0.in\n"
                         "exec " MOEJIT_TOOL " \"$@\" < $0.in\n"));
  std::filesystem::permissions(program, std::filesystem::perms(0700));
  const auto refused = engine({.compile_worker = program})->obtain(flight_kernel(3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCompilerFault);
  EXPECT_NE(refused.error().message.find("would make it with another moejit"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(control()->begun, 0);
}

TEST_F(WorkerTest, SaysWhatIsWrongWithTheProgram) {
  const auto none = engine({.compile_worker = "/no/such/program"})->obtain(flight_kernel(3));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kCompilerFault);
  EXPECT_EQ(none.error().message,
            "kernel moejit_flight_3: the compile worker /no/such/program is not a program");
  const auto other = engine({.compile_worker = "true"})->obtain(flight_kernel(3));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kCompilerFault);
  EXPECT_NE(other.error().message.find("ended with exit status 0"), std::string::npos);
}

// Each level of a list in a list would take stack to read.
TEST_F(WorkerTest, SurvivesAnAnswerThatIsNone) {
  const std::string program = (dir_ / "worker").string();
  for (const char* answer : {"head -c 4000000 /dev/zero | tr '\\0' '\\201'",
                             "head -c 100 /dev/urandom", "printf '\\241ebytes'", "true"}) {
    ASSERT_TRUE(write_file(program, std::string("#!/bin/sh\n") + answer + "\n"));
    std::filesystem::permissions(program, std::filesystem::perms(0700));
    const auto result = engine({.compile_worker = program})->obtain(flight_kernel(3));
    ASSERT_FALSE(result) << answer;
    EXPECT_EQ(result.error().code, ErrorCode::kCompilerFault) << answer;
  }
}

TEST_F(WorkerTest, LeavesAReproducer) {
  control()->compiles_to_go = 1;
  const std::string folder = (dir_ / "reproducers").string();
  compiler::KernelSource source = flight_kernel(3);
  source.text += "#include \"moejit_device/ptx/memory.cuh\"\n";
  const auto crashed =
      engine({.compile_worker = MOEJIT_TOOL, .reproducer_dir = folder})->obtain(source);
  ASSERT_FALSE(crashed);
  const std::filesystem::path here = folder + "/moejit_flight_3";
  EXPECT_EQ(crashed.error().hint, "what reproduces it is in " + here.string());
  EXPECT_EQ(read_text_file(here / "kernel.cu").value(), source.text);
  EXPECT_TRUE(std::filesystem::exists(here / "moejit_device/ptx/memory.cuh"));
  const auto report = nlohmann::json::parse(read_text_file(here / "reproducer.json").value());
  EXPECT_EQ(report.at("code"), "compiler_fault");
  EXPECT_EQ(report.at("target"), "cuda:sm_90a");
  EXPECT_EQ(report.at("toolchain").at(0), "compiler=nvrtc 13.0");
}

TEST_F(WorkerTest, TellsWhereAReproducerCouldNotBeWritten) {
  control()->result = 6;
  ASSERT_TRUE(write_file((dir_ / "file").string(), ""));
  const auto failed =
      engine({.reproducer_dir = (dir_ / "file").string()})->obtain(flight_kernel(3));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(failed.error().hint.find("a reproducer could not be written"), std::string::npos);
}

}  // namespace
}  // namespace moejit::testing
