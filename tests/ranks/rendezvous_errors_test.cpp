// SPDX-License-Identifier: Apache-2.0
// What a meeting refuses: paths, ranks, identities, strangers.
#include "runtime/group/rendezvous.h"
#include "runtime/group/rendezvous_socket.h"
#include "tests/ranks/meeting_fixture.h"

#include <array>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace moejit::testing {
namespace {

using runtime::PacketSocket;

class MeetingErrors : public MeetingTest {
 protected:
  // Joins in this process; returns the error.
  static Error join(const std::string& path, int32_t rank, int32_t ranks = 2,
                    int64_t deadline_ms = 100) {
    const FileDescriptor file(::dup(0));
    const auto met = runtime::Rendezvous::join({.path = path, .deadline_ms = deadline_ms},
                                               {.rank = rank, .ranks = ranks}, file);
    EXPECT_FALSE(met);
    return met ? Error{} : met.error();
  }
  static void expect_refused(const Error& error, ErrorCode code, std::string_view words) {
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
  }
  // Connects to rank 0 as no rank would.
  PacketSocket connect() const {
    auto link = runtime::connect_to(path(), runtime::Deadline(kLong));
    EXPECT_TRUE(succeeded(link));
    return link ? std::move(*link) : PacketSocket();
  }
};

TEST_F(MeetingErrors, NameAPathThatIsTooLong) {
  for (const int32_t rank : {0, 1})
    expect_refused(join("/tmp/" + std::string(103, 'x'), rank), ErrorCode::kInvalidValue,
                   "has 108 bytes, wanted 1 to 107");
}

TEST_F(MeetingErrors, NameAnEmptyPath) {
  expect_refused(join("", 0), ErrorCode::kInvalidValue, "is empty");
}

TEST_F(MeetingErrors, NameADeadlineThatIsNone) {
  for (const int64_t ms : {0, -1, 100'000'000})
    expect_refused(join(path(), 0, 2, ms), ErrorCode::kInvalidValue, "wanted 1 to 86400000");
}

TEST_F(MeetingErrors, NameRanksThatAreNone) {
  expect_refused(join(path(), 2), ErrorCode::kInvalidValue, "got rank 2 of 2");
  expect_refused(join(path(), -1), ErrorCode::kInvalidValue, "got rank -1 of 2");
  expect_refused(join(path(), 0, 9), ErrorCode::kInvalidValue, "got rank 0 of 9");
}

TEST_F(MeetingErrors, NameAFolderThatIsNotThere) {
  expect_refused(join((dir_ / "none/group").string(), 0), ErrorCode::kFileWrite,
                 "No such file or directory");
}

TEST_F(MeetingErrors, LeaveFilesAndFoldersAlone) {
  std::ofstream(path()) << "kept";
  for (const int32_t rank : {0, 1}) {
    expect_refused(join(path(), rank), ErrorCode::kInvalidValue, "is a file that is no socket");
    expect_refused(join(dir_.path().string(), rank), ErrorCode::kInvalidValue, "is a folder");
  }
  std::string kept;
  std::ifstream(path()) >> kept;
  EXPECT_EQ(kept, "kept");
}

TEST_F(MeetingErrors, NameTheUserOfASocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a socket of another user";
  const FileDescriptor socket = PacketSocket::make();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::chown(path().c_str(), 1234, 1234), 0);
  for (const int32_t rank : {0, 1})
    expect_refused(join(path(), rank), ErrorCode::kInvalidValue,
                   "belongs to user 1234, wanted one of user 0");
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(MeetingErrors, TurnAwayProcessesOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ChildProcess first = start(0, 2, 2000);
  await_socket();
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::seteuid(1234), 0);
  {
    const FileDescriptor socket = PacketSocket::make();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ASSERT_EQ(::seteuid(0), 0);
  }
  expect_failure(first, "interrupted", "of user 1234 came and was turned away");
}

// Between a look at the socket's file and the connection somebody else may have taken the path.
// Nothing is sent to him: neither who comes nor, above all, the descriptor of its memory.
TEST_F(MeetingErrors, GiveNothingToAStrangerWhoListens) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const FileDescriptor stranger = PacketSocket::make();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
  // The file is ours, as it was when it was looked at; who listens is another user.
  ASSERT_EQ(::seteuid(1234), 0);
  const int listening = ::listen(stranger.get(), 8);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_EQ(listening, 0);
  for (const int32_t rank : {0, 1}) {
    expect_refused(join(path(), rank), ErrorCode::kInvalidValue, "of user 1234 listens at");
    const PacketSocket link(
        FileDescriptor(::accept4(stranger.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    ASSERT_TRUE(link);
    runtime::Packet packet;
    int error = 0;
    EXPECT_EQ(link.receive(packet, error), PacketSocket::Received::kEnd) << "rank " << rank;
    EXPECT_TRUE(packet.files.empty());
  }
}

// Numbers are checked as they came, not as what is left of them in 32 bits.
TEST_F(MeetingErrors, NameRanksOfMoreThan32Bits) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("rank":4294967297,"ranks":2)", "came to " /* as no rank */},
      {R"("rank":1,"ranks":4294967298)", "wanted one of 2"},
      {R"("rank":-4294967295,"ranks":2)", "came to "}};
  for (const auto& [numbers, words] : cases) {
    ChildProcess first = start(0, 2);
    const PacketSocket stranger = connect();
    const std::string hello =
        std::string(R"({"protocol":"moejit group 1","kind":"hello","hello":{)") + numbers +
        R"(,"bytes":4096,"gpu":"","identity":[]}})";
    const FileDescriptor file(::dup(0));
    const std::array<int, 1> files = {file.get()};
    EXPECT_EQ(stranger.send(hello, files, runtime::Deadline(1000)), 0);
    expect_failure(first, "invalid_value", words);
  }
}

TEST_F(MeetingErrors, NameTwoProcessesOfOneRank) {
  for (const int32_t twice : {1, 0}) {
    ChildProcess first = start(0, 3);
    await_socket();
    ChildProcess second = start(twice, 3), third = start(twice, 3);
    const std::string words = " as rank " + std::to_string(twice) + ", wanted one process a rank";
    if (twice == 1) {
      for (ChildProcess* rank : {&first, &second, &third})
        expect_failure(*rank, "invalid_value", words);
    } else {
      // The third comes to the first's socket too, or to none any more.
      expect_failure(first, "invalid_value", words);
    }
  }
}

TEST_F(MeetingErrors, NameAnotherNumberOfRanks) {
  ChildProcess first = start(0, 2), second = start(1, 4);
  for (ChildProcess* rank : {&first, &second})
    expect_failure(*rank, "invalid_value", "for a group of 4 ranks, wanted one of 2");
}

TEST_F(MeetingErrors, NameTheFieldThatDiffers) {
  ChildProcess first = start(0, 3, kLong, {"hidden=256", "plan_digest=aa"});
  ChildProcess second = start(1, 3, kLong, {"hidden=256", "plan_digest=aa"});
  await_socket();
  ChildProcess third = start(2, 3, kLong, {"hidden=256", "plan_digest=ab"});
  for (ChildProcess* rank : {&first, &third})
    expect_failure(*rank, "tensor_mismatch",
                   "ranks 0 and 2 of a group differ in plan_digest: aa and ab");
}

TEST_F(MeetingErrors, CompareLongFields) {
  const std::string text = "activation=" + std::string(100'000, 'x');
  {
    std::vector<ChildProcess> ranks;
    for (int32_t rank = 0; rank < 2; ++rank) ranks.push_back(start(rank, 2, kLong, {text}));
    for (ChildProcess& rank : ranks) expect(rank, "met ");
    expect_done(ranks);
  }
  ChildProcess first = start(0, 2, kLong, {text}), second = start(1, 2, kLong, {text + "y"});
  for (ChildProcess* rank : {&first, &second})
    expect_failure(*rank, "tensor_mismatch", "differ in activation: ");
}

TEST_F(MeetingErrors, NameAGpuOfTwoRanks) {
  ChildProcess first = start(0, 2, kLong, {"gpu=0f:00"}),
               second = start(1, 2, kLong, {"gpu=0f:00"});
  for (ChildProcess* rank : {&first, &second})
    expect_failure(*rank, "invalid_value", "ranks 0 and 1 are both on the GPU 0f:00");
}

TEST_F(MeetingErrors, IgnoreWhoOnlyLooks) {
  std::vector<ChildProcess> ranks;
  ranks.push_back(start(0, 2));
  { const PacketSocket stranger = connect(); }
  ranks.push_back(start(1, 2));
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  expect_done(ranks);
}

TEST_F(MeetingErrors, NameWhoSpeaksAnotherLanguage) {
  for (const std::string_view text :
       {"hello", "{}", R"({"protocol":"moejit group 0","kind":"hello"})",
        R"({"protocol":"moejit group 1","kind":"go"})",
        R"({"protocol":"moejit group 1","kind":"hello","hello":[]})"}) {
    ChildProcess first = start(0, 2);
    const PacketSocket stranger = connect();
    EXPECT_EQ(stranger.send(text, {}, runtime::Deadline(1000)), 0);
    expect_failure(first, "invalid_value", "speaks another language");
  }
}

// Rank 0 sends nothing that the others cannot take.
TEST_F(MeetingErrors, NameARankZeroThatSpeaksAnotherLanguage) {
  PacketSocket occupant;
  auto listener = runtime::ListeningSocket::open(path(), occupant);
  ASSERT_TRUE(succeeded(listener));
  ChildProcess second = start(1, 2);
  PacketSocket link;
  for (int i = 0; i < 6000 && !link; ++i) {
    link = listener->accept();
    ::usleep(10000);  // NOLINT(concurrency-mt-unsafe)
  }
  ASSERT_TRUE(link);
  EXPECT_EQ(link.send("hello", {}, runtime::Deadline(1000)), 0);
  expect_failure(second, "interrupted", "rank 0 left " + path());
}

TEST_F(MeetingErrors, TellOfASocketThatIsRemoved) {
  ChildProcess first = start(0, 2);
  await_socket();
  std::filesystem::remove(path());
  expect_failure(first, "interrupted", "somebody removed or replaced the socket");
}

}  // namespace
}  // namespace moejit::testing
