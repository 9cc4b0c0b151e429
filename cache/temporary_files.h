// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::cache {

// A new name for a file being written: <system>-<pid>-<random>. The first part is the same for all
// processes that can see each other's ids: those of one boot of one machine, in one namespace of
// process ids (a container has its own).
std::string temporary_name();

// 16 hexadecimal digits that nobody else has.
std::string random_hex();

// Whether nobody will finish a file of this name and age any more: its writer is dead; or, where
// that cannot be told, it is an hour old, a day where a process of its number lives.
bool is_stale_temporary(std::string_view name, std::int64_t age_seconds);

}  // namespace moejit::cache
