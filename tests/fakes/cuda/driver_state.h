// SPDX-License-Identifier: Apache-2.0
// What the fake libcuda consists of. Contexts, streams and graphs are never freed, so that a handle
// which is no longer valid is told from one that is.
#pragma once

#include "tests/fakes/fake_cuda.h"

#include <cuda.h>
#include <mutex>
#include <string>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace moejit::testing::fake {

struct Context;
struct Graph;
struct Library;

struct Stream {
  Context* context = nullptr;
  bool is_legacy = false;
  bool is_blocking = true;
  std::atomic<bool> is_alive{true};
  std::atomic<CUstreamCaptureStatus> status{CU_STREAM_CAPTURE_STATUS_NONE};
  // The capture into the stream; under captures_mutex().
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  // that began the capture
  Graph* graph = nullptr;
  // Launches that are not over; under flights_mutex().
  std::vector<Library*> in_flight;
};

struct Context {
  CUdevice device = 0;
  std::size_t index = 0;  // of all contexts that there ever were
  bool is_primary = false;
  std::atomic<bool> is_alive{false};
  std::atomic<CUresult> lost{CUDA_SUCCESS};  // what every call in it fails with
  Stream legacy;
  std::vector<Stream*> streams;  // under flights_mutex()
};

// An image that was loaded, with its one kernel. Its place is used again for a later image, unless
// something still refers to it.
struct Library {
  std::size_t slot = 0;
  std::atomic<uint64_t> generation{1};  // of the place: part of the handles
  std::string entry;
  std::size_t bytes = 0;
  std::size_t param_bytes = 0;
  int static_shared_bytes = 0;
  std::array<std::atomic<int>, FakeCudaControl::kDevices> most_dynamic_bytes{};
  std::array<std::atomic<bool>, 64> is_ready_in{};  // by index of the context
  std::atomic<bool> is_loaded{false};
  std::vector<CUdevice> devices;  // whose memory it takes, once for each context
  std::atomic<int64_t> in_flight{0};
  std::atomic<int64_t> graphs{0};  // nodes of graphs that launch it
};

struct UserObject {
  void* payload = nullptr;
  CUhostFn destroy = nullptr;
  std::atomic<int64_t> references{0};
};

// A graph, or one that can be launched.
struct Graph {
  std::atomic<bool> is_alive{true};
  std::vector<Library*> nodes;
  std::vector<UserObject*> user_objects;
};

inline constexpr int kSharedBytesPerBlock = 48 << 10;
inline constexpr int kSharedBytesOptIn = 227 << 10;
inline constexpr int kMostThreads = 1024;

FakeCudaControl& control();
inline void count(FakeCudaControl::Count& counter, int64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

// One call of an entry point: counts it, and says what it fails with before it does anything.
class Call {
 public:
  explicit Call(CudaCall which);
  ~Call();
  Call(const Call&) = delete;
  CUresult early_result() const { return early_result_; }

 private:
  CUresult early_result_ = CUDA_SUCCESS;
  uint64_t start_ = 0;  // in ticks, where time is taken
};
#define FAKE_CALL(which)                                     \
  const ::moejit::testing::fake::Call call(CudaCall::which); \
  if (call.early_result() != CUDA_SUCCESS) return call.early_result()

// On the driver's own thread, where a user object ends.
extern thread_local bool is_in_callback;

// Contexts
int device_count();
bool is_device(int ordinal);
Context* current_context();  // of this thread; null: none
bool is_alive(const Context* context);
uint64_t this_thread();

// Streams and captures
std::mutex& captures_mutex();
std::mutex& flights_mutex();
// The stream behind a handle in the current context; null: not valid.
Stream* find_stream(CUstream handle);
// What a call that is not safe in captures gives now: it is prohibited, and ends them, as
// cuThreadExchangeStreamCaptureMode() documents.
CUresult check_unsafe_call();
// What waiting for a context gives: it ends every capture in it.
CUresult check_wait_for(const Context& context);
void invalidate(Stream& stream);  // its capture; under captures_mutex()
void finish_launches(Stream& stream);
void finish_launches(Context& context);

// Kernels
Library* find_library(const void* handle);  // of a library, kernel or function; null: not valid
void start_launch(Library& library, Stream& stream);
CUresult launch_or_capture(Library& library, Stream& stream);

// Memory that images take.
bool take_memory(CUdevice device, std::size_t bytes);
void give_memory(CUdevice device, std::size_t bytes);
// Memory that is mapped at an address, for copies and fills.
void add_block(CUdeviceptr address, std::size_t bytes, CUdevice device);
void remove_block(CUdeviceptr address);
// What was copied in this context to its device arrives there.
void land_copies(const Context* context);

}  // namespace moejit::testing::fake
