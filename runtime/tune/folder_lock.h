// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"

#include <string>

namespace moejit::tune {

// Returns a lock on the folder of a file, which lasts until the descriptor is closed. If commands
// that read, change and write the file take it, none loses what another one wrote. Waits until
// other commands release the lock. Returns an empty descriptor if the folder cannot be opened or
// its file system has no locks.
FileDescriptor lock_folder_of(const std::string& path);

}  // namespace moejit::tune
