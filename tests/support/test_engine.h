// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "runtime/engine.h"

#include <memory>
#include <string>

namespace moejit::testing {

// Returns the folder of the tests' own kernel cache, an absolute path; empty where TEST_CACHE=off.
std::string test_cache_folder();

// Creates an engine whose kernels outlive the process: they are kept in the tests' own cache
// folder, TEST_CACHE, by default `test-kernels` in the build folder. A kernel's key covers its
// source, its headers, the compiler and its options, so a test sees the bytes that it would have
// compiled. TEST_CACHE=off compiles every kernel anew, once a process; so does a folder that cannot
// be used.
Result<std::unique_ptr<runtime::Engine>> make_test_engine();

// Returns the engine of this process that tests share. It is never destroyed.
runtime::Engine& test_engine();

}  // namespace moejit::testing
