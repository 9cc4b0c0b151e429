// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace moejit::cache {

// The name of the network or cluster file system that an open file lies on ("NFS"); empty where it
// is a local one, or cannot be told. Those of FUSE and 9p count as local: they may be either.
std::string_view network_file_system_of(int fd);

}  // namespace moejit::cache
