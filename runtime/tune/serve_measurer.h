// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/measuring_process.h"

namespace moejit::tune {

// Serves a MeasuringProcess at the other end of the socket until that end is closed or the device
// no longer works, and ends this process. It also ends when `parent` does.
[[noreturn]] void serve_measurer(int socket, pid_t parent, const MeasuringProcess::Start& start);

// Reads a line from the socket into `line`, without its newline, within so many seconds; bytes
// behind it stay in `received`.
enum class LineEnd { kRead, kClosed, kTimedOut };
LineEnd read_socket_line(int socket, double seconds, std::string& received, std::string& line);

// Writes a line. Returns false if nobody reads any more.
bool write_socket_line(int socket, std::string_view line);

}  // namespace moejit::tune
