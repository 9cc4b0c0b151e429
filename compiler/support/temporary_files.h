// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit {

// Returns a new name for a file being written: <system>-<pid>-<random>. The first part is equal for
// all processes that can see each other's ids. These are processes of one boot of one machine, in
// one namespace of process ids (a container has its own).
std::string temporary_name();

// Returns 16 random hexadecimal digits, which no other process has.
std::string random_hex();

// Returns whether a file of this name and age is abandoned. That is so if its writer is dead. If
// that cannot be told, it is so after an hour (a day if a process with the writer's number lives).
bool is_stale_temporary(std::string_view name, std::int64_t age_seconds);

}  // namespace moejit
