// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"

#include <string>

namespace moejit::tune {

// Returns a lock on the folder of a file, which lasts until the descriptor is closed: of commands
// that read the file, change it and write it, none then loses what another one wrote. Waits for
// those that have the lock. Returns an empty descriptor if the folder cannot be opened or its file
// system has no locks.
FileDescriptor lock_folder_of(const std::string& path);

}  // namespace moejit::tune
