// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace moejit::testing {

// A program that a test runs beside itself and talks to by lines: it reads them from its standard
// input and answers on its standard output. Killed and waited for at the end.
class ChildProcess {
 public:
  // Starts a program; `variables` ("NAME=value") come before those of this process. Without one
  // if the program cannot be started: is_running() tells.
  explicit ChildProcess(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& variables = {});
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t id() const { return id_; }
  bool is_running() const { return id_ > 0; }

  // Sends a line. A process that is gone hears nothing.
  void say(const std::string& line) const;
  // Returns the next line that it says; none if it ends before, or says nothing for so long.
  std::optional<std::string> hear(int64_t ms = 60000);
  // Sends a signal: SIGKILL, SIGSTOP, SIGCONT.
  void signal(int number) const;
  // Waits for its end, which comes after a minute in any case; returns its exit status, or 128 and
  // the number of the signal that ended it.
  int wait();

 private:
  pid_t id_ = 0;
  FileDescriptor input_, output_;
  std::string heard_;  // behind the last line
};

// Returns how many files this process has open.
int open_files();

}  // namespace moejit::testing
