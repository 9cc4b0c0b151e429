// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/measuring_process.h"

namespace moejit::tune {

// Serves the MeasuringProcess at the other end of the socket, then ends this process. Serving ends
// when the other end is closed or the device no longer works. This process also ends when `parent`
// does.
[[noreturn]] void serve_measurer(int socket, pid_t parent, const MeasuringProcess::Start& start);

// How reading a line from the socket ended. read_socket_line() reads it into `line`, without its
// newline, within `seconds`; bytes after it stay in `received`.
enum class LineEnd { kRead, kClosed, kTimedOut };
LineEnd read_socket_line(int socket, double seconds, std::string& received, std::string& line);

// Writes a line. Returns false if the other end no longer reads.
bool write_socket_line(int socket, std::string_view line);

}  // namespace moejit::tune
