// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/journal_writer.h"

#include "runtime/tune/decision/journal_line.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fmt/core.h>
#include <span>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace moejit::tune {
namespace {

// A tuner that was killed a moment ago may still hold its lock.
constexpr auto kEndingTime = std::chrono::seconds(2);

// Syncs the folder, so that a new file is still found after a power cut. Some file systems cannot
// do that; the file is then as safe as the file system makes it.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) sync_file(opened.get());
}

// Returns `count` bytes at this offset, or fewer at the end of the file or if it cannot be read.
std::string bytes_at(int fd, int64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  const ssize_t got = ::pread(fd, bytes.data(), count, offset);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

// Returns the first bytes of a journal, as many as `begin` has. Skips leading lines that are only a
// part of `begin`: a tuner that is killed in its first line leaves such a line.
std::string first_bytes(int fd, std::string_view begin) {
  int64_t offset = 0;
  while (true) {
    std::string found = bytes_at(fd, offset, begin.size());
    const std::size_t end = found.find('\n');
    if (end == std::string::npos || end == 0 || !begin.starts_with(found.substr(0, end)))
      return found;
    offset += static_cast<int64_t>(end) + 1;
  }
}

}  // namespace

Result<JournalWriter> JournalWriter::open(const std::string& path, const Session& session) {
  MOEJIT_TRY_ASSIGN(const std::string first_line, text_of(session));
  JournalWriter writer(
      path, FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)));
  if (!writer.file_) return writer.cannot_write(errno_text(errno));
  MOEJIT_TRY(writer.lock());
  MOEJIT_TRY(writer.look_at_content());
  writer.session_ = session.id;
  MOEJIT_TRY(writer.write(std::span(&first_line, 1)));
  sync_folder_of(path);
  return writer;
}

Result<void> JournalWriter::append(std::string_view problem, const Event& event) {
  return append_all(problem, std::span(&event, 1));
}

Result<void> JournalWriter::append_all(std::string_view problem, std::span<const Event> events) {
  std::vector<std::string> lines;
  for (const Event& event : events) lines.push_back(text_of(session_, problem, event));
  return write(lines);
}

Result<void> JournalWriter::lock() {
  const auto end = std::chrono::steady_clock::now() + kEndingTime;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK)
      return cannot_write(fmt::format("cannot lock it: {}", errno_text(errno)));
    if (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    return fail(Stage::kFile, ErrorCode::kFileWrite,
                fmt::format("cannot append to {}: another tuner has it open", path_),
                "wait for the other tuner to end, or name another journal");
  }
  return {};
}

Result<void> JournalWriter::look_at_content() {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return cannot_write(errno_text(errno));
  if (!S_ISREG(status.st_mode)) return cannot_write("it is not a regular file");
  size_ = status.st_size;
  if (size_ == 0) return {};
  const std::string begin = fmt::format("{{\"journal\":\"{}\"", kJournalFormat);
  const std::string found = first_bytes(file_.get(), begin);
  if (!begin.starts_with(found))
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("cannot append to {}: it begins with {}, wanted {}", path_,
                            quote_for_message(found), begin),
                "name a journal of this version of moejit, or a file that does not exist");
  is_torn_ = bytes_at(file_.get(), size_ - 1, 1) != "\n";
  return {};
}

Result<void> JournalWriter::write(std::span<const std::string> lines) {
  if (has_failed_) return cannot_write("an earlier line could not be written");
  std::string text = is_torn_ ? "\n" : "";
  for (const std::string& line : lines) {
    // A line that cannot be read back would make the whole journal unreadable, so it must not be
    // written.
    MOEJIT_TRY_ASSIGN(const JsonDocument document, parse_line(line, path_ + ": line to append", 1));
    MOEJIT_TRY(read_line(document));
    text += line + "\n";
  }
  const auto bytes = static_cast<int64_t>(text.size());
  if (size_ + bytes > kMostJournalBytes)
    return fail(Stage::kFile, ErrorCode::kInvalidValue,
                fmt::format("cannot append {} bytes to {}: it has {}, wanted at most {} in all",
                            bytes, path_, size_, kMostJournalBytes),
                "name another journal");
  int error = write_all(file_.get(), std::as_bytes(std::span(text)));
  if (error == 0) error = sync_file(file_.get());
  has_failed_ = error != 0;
  if (has_failed_) return cannot_write(errno_text(error));
  size_ += bytes;
  is_torn_ = false;
  return {};
}

tl::unexpected<Error> JournalWriter::cannot_write(std::string_view why) const {
  return fail(Stage::kFile, ErrorCode::kFileWrite, fmt::format("cannot write {}: {}", path_, why));
}

}  // namespace moejit::tune
