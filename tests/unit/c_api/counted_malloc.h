// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The program's own malloc, which counts and can fail; libmoejit.so, libstdc++ and the program all
// end there.
namespace moejit::testing {

// Returns how often this thread has allocated.
int64_t allocations();

// Makes all allocations of this thread fail after as many more as `count`, until
// fail_no_allocations() is called.
void fail_allocations_after(int64_t count);

// Does the same to each thread that begins from now on.
void fail_allocations_of_new_threads_after(int64_t count);
void fail_no_allocations();

}  // namespace moejit::testing
