// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace moejit::testing {

// How the fake NVRTC behaves, and what it counted, in a file that all processes of a test map; its
// path is in the environment variable FAKE_NVRTC_CONTROL. All zero: each compile succeeds at once.
struct FakeNvrtcControl {
  static constexpr std::size_t kKernels = 256;

  // What to do.
  std::atomic<int64_t> microseconds;     // a compile takes at least
  std::atomic<int64_t> code_bytes;       // of a kernel; 0: 1024
  std::atomic<int64_t> compiles_to_go;   // this many until one crashes; 0: none does
  std::atomic<int32_t> result;           // that compiles give; 0: success
  std::atomic<int32_t> is_inconsistent;  // each compile makes other bytes

  // What happened.
  std::atomic<int64_t> begun;
  std::atomic<int64_t> finished;
  std::atomic<int64_t> cancelled;
  std::atomic<int64_t> running;
  std::atomic<int64_t> most_running;
  std::array<std::atomic<int64_t>, kKernels> begun_of;  // by the number that ends the entry's name
  std::array<std::atomic<int64_t>, 1024> order;         // numbers of kernels as they were begun

  // For the test program itself: processes that are ready, and a sign to start.
  std::atomic<int64_t> ready;
  std::atomic<int64_t> go;
};

// The control record in a file, which is made or, where it is there, mapped as it is.
class MappedControl {
 public:
  explicit MappedControl(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(FakeNvrtcControl)) != 0)
      throw std::runtime_error("no control file " + path);
    void* const memory =
        ::mmap(nullptr, sizeof(FakeNvrtcControl), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    control_ = static_cast<FakeNvrtcControl*>(memory);
  }
  ~MappedControl() { ::munmap(control_, sizeof(FakeNvrtcControl)); }
  MappedControl(const MappedControl&) = delete;
  MappedControl& operator=(const MappedControl&) = delete;

  FakeNvrtcControl* operator->() const { return control_; }

 private:
  FakeNvrtcControl* control_;
};

}  // namespace moejit::testing
