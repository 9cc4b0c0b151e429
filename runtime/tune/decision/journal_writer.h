// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"
#include "runtime/tune/decision/journal.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moejit::tune {

// Appends to a journal. Each line is written at once and synced before append() returns. So a kill
// or a power cut costs at most the line that is being written. While a writer lives, no other
// writer opens the same file, in this process or another one.
class JournalWriter {
 public:
  // Opens the journal, creating it if there is none, and begins the session. If the last line is
  // torn, it is ended first. Errors: kFileWrite if the file cannot be opened, locked or written;
  // kInvalidFile if it is not a journal. Also returns the errors of append().
  static Result<JournalWriter> open(const std::string& path, const Session& session);

  // Appends an event of a problem. kInvalidValue or kWrongType: the event could not be read back,
  // or the file or line would exceed its limit; the journal is then as before. kFileWrite: the file
  // cannot be written, for example on a full disk. Earlier lines then stay readable, but the writer
  // accepts nothing more.
  Result<void> append(std::string_view problem, const Event& event);
  // Appends events of a problem, and syncs once, after the last one. Returns errors as append()
  // does. If one event could not be read back, none is appended.
  Result<void> append_all(std::string_view problem, std::span<const Event> events);

 private:
  JournalWriter(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  Result<void> lock();
  Result<void> look_at_content();
  Result<void> write(std::span<const std::string> lines);
  tl::unexpected<Error> cannot_write(std::string_view why) const;

  std::string path_;
  FileDescriptor file_;
  std::string session_;
  int64_t size_ = 0;  // bytes of the file
  bool is_torn_ = false;
  bool has_failed_ = false;
};

}  // namespace moejit::tune
