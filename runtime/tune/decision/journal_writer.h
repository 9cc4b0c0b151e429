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
// or a power cut costs at most the line in the making. While it lives no other writer opens the
// same file, in this process or another one.
class JournalWriter {
 public:
  // Opens the journal, which is created if there is none, and begins the session; a last line that
  // is torn is ended first. Errors: kFileWrite if the file cannot be opened, locked or written;
  // kInvalidFile if it is something else than a journal; as of append().
  static Result<JournalWriter> open(const std::string& path, const Session& session);

  // Appends an event of a problem. Errors: kInvalidValue or kWrongType for an event that could not
  // be read back, or if file or line would exceed their limits. The journal is then as before.
  // kFileWrite if the file cannot be written, such as on a full disk. What was there before stays
  // readable, but the writer takes nothing more.
  Result<void> append(std::string_view problem, const Event& event);
  // Appends events of a problem and syncs once, behind the last. Errors are as for one event; if
  // one of them could not be read back, none is appended.
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
  int64_t size_ = 0;  // of the file, in bytes
  bool is_torn_ = false;
  bool has_failed_ = false;
};

}  // namespace moejit::tune
