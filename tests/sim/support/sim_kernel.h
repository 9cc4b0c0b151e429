// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/host/host_compiler.h"
#include "runtime/device.h"

#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// A tensor map of a launch: a box of a tensor that begins where buffer number `buffer` does.
struct SimMap {
  std::size_t buffer = 0;
  compiler::TensorBox box;
};

// One launch of a small kernel: device memory, and the parameter record of pointers to it.
struct SimLaunch {
  int64_t ctas = 1;
  int32_t threads = 32;
  int32_t shared_bytes = 1024;
  uint64_t seed = 0;
  int32_t workers = 1;
  std::vector<SimMap> maps;
  bool overlaps = false;  // with a kernel before, see SimBuffer::before
  compiler::Target target = compiler::simulator_target();
};

// Kernels of these tests take `struct Params { T* first; U* second; ... }`, one pointer for each
// buffer and after them one TensorMap for each map, and are named "test_kernel".
struct SimBuffer {
  enum class Before { kNothing, kReads, kWrites };
  std::string name;
  std::vector<std::byte> bytes;  // in and out
  bool writable = true;
  bool written = true;               // false: allocated only, the contents are not copied in
  std::size_t unwritten_tail = 0;    // bytes at the end that are not copied in
  Before before = Before::kNothing;  // what the kernel before the launch may do with it
};

template <typename T>
SimBuffer buffer_of(std::string name, const std::vector<T>& values, bool writable = true) {
  SimBuffer buffer{std::move(name), std::vector<std::byte>(values.size() * sizeof(T)), writable};
  if (!values.empty()) std::memcpy(buffer.bytes.data(), values.data(), buffer.bytes.size());
  return buffer;
}

template <typename T>
std::vector<T> values_of(const SimBuffer& buffer) {
  std::vector<T> values(buffer.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), buffer.bytes.data(), buffer.bytes.size());
  return values;
}

// Returns kernel text for a target; `body` follows the includes of all ptx headers.
compiler::KernelSource test_kernel_source(const std::string& body, const std::string& entry,
                                          const compiler::Target& target);

// Compiles kernel text for the simulator, once per process.
Result<std::shared_ptr<const compiler::KernelBinary>> compile_test_kernel(
    const std::string& body, const std::string& entry = "test_kernel",
    const compiler::Target& target = compiler::simulator_target());

// Compiles, loads and launches; what the launch said. Results are copied back into `buffers`.
Result<void> run_test_kernel(const std::string& body, const SimLaunch& launch,
                             std::vector<SimBuffer>& buffers);

}  // namespace moejit::runtime
