// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"

#include <cstdint>

namespace moejit::runtime {

// Memory of a GPU that the processes of several ranks map, each at an address of its own. It lives
// until the last of them lets go of it, so that a process which dies takes none from the others.
// The destructor waits for the work of its device in this process, and unmaps; in a child made by
// fork() it does nothing.
class Heap {
 public:
  virtual ~Heap() = default;

  virtual void* address() const = 0;  // a multiple of 256, for as long as the object lives
  virtual int64_t bytes() const = 0;  // that are mapped, a multiple of the device's granularity

  // Returns a file by which a process maps the memory too. It closes on exec, and keeps the memory
  // while it is open.
  virtual Result<FileDescriptor> file() const = 0;

  // Waits for the work of the device in this process. Then maps the memory of another file, of as
  // many bytes, at the same address instead. After an error nothing is mapped there.
  virtual Result<void> replace(const FileDescriptor& file) = 0;
};

}  // namespace moejit::runtime
