// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace moejit::cache {

// Returns the name of the network or cluster file system of an open file ("NFS"). Empty if it is a
// local one, or cannot be told. FUSE and 9p count as local: they may be either.
std::string_view network_file_system_of(int fd);

}  // namespace moejit::cache
