// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "compiler/target.h"
#include "moejit_device/core/tensor_map.cuh"
#include "runtime/heap.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// A CUstream; null is the default stream. The simulator runs every launch to its end and ignores
// the stream.
using Stream = void*;

// Memory that a launch may touch. The simulator refuses every access outside of the regions and
// every write to one that is not writable. A GPU does not look at them.
struct MemoryRegion {
  std::string_view name;  // name of the tensor, for reports
  const void* address = nullptr;
  int64_t bytes = 0;
  bool writable = false;
};

// A kernel that is resident and ready. On a GPU it may be destroyed while launches are in flight,
// recorded or being recorded: nothing is unloaded before they are over.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // Returns the bytes of the parameter record that the kernel takes; none if the driver does not
  // tell.
  virtual std::optional<std::size_t> param_bytes() const = 0;
};

// The names that other tools of the driver use for a GPU.
struct GpuFacts {
  int32_t ordinal = 0;       // as CUDA counts the GPUs of this process
  std::string pci_bus_id;    // "00000000:0f:00.0"
  std::string cuda_version;  // newest release that the driver knows, "13.0"
  // As tuning records know it, but for the power limit, which the driver does not tell.
  std::optional<compiler::GpuIdentity> identity;
};

struct LaunchRequest {
  const LoadedKernel* kernel = nullptr;
  int64_t ctas = 0;  // 0: nothing to do, a valid launch of no work
  int32_t threads = 0;
  int32_t shared_bytes = 0;           // dynamic
  std::span<const std::byte> params;  // the kernel's parameter record
  std::span<const MemoryRegion> regions;
  // Whether the launch may begin before the kernel before it on the stream has ended: that kernel
  // lets it, and this one waits itself (compiler::LaunchShape::overlaps).
  bool overlaps = false;
  // What that kernel may touch, for devices that look at regions.
  std::span<const MemoryRegion> regions_before;
  // What is_recording() said of the stream, to a caller that has entered the device for several
  // launches. None: launch() makes the device current itself, and asks.
  std::optional<bool> is_recorded;
};

// Launches that a device recorded. Their kernels stay loaded; their memory is the caller's.
class Recording {
 public:
  virtual ~Recording() = default;
  // Queues all of them again, on a stream of the device that recorded them. Any thread may call it.
  virtual Result<void> launch(Stream stream) = 0;
};

// Something that runs kernels: a GPU through the driver API, or the simulator. launch() may be
// called from several threads; it does not allocate, lock or synchronize on the GPU. The functions
// for memory serve tools and tests: hosts bring their own memory.
class Device {
 public:
  virtual ~Device() = default;

  virtual compiler::Target target() const = 0;
  virtual std::string name() const = 0;              // "NVIDIA H200", "simulator"
  virtual int32_t sm_count() const = 0;              // the simulator says 4
  virtual GpuFacts gpu_facts() const { return {}; }  // empty if there is no GPU

  // Makes the device current on the calling thread until leave(), so that the calls in between need
  // not. Returns whether leave() has to be called.
  virtual Result<bool> enter() { return false; }
  virtual void leave() {}

  // Returns whether launches on the stream are recorded into a graph. The device is entered.
  virtual Result<bool> is_recording(Stream /*stream*/) const { return false; }

  virtual Result<std::unique_ptr<LoadedKernel>> load(const compiler::KernelBinary& binary) = 0;
  virtual Result<void> launch(const LaunchRequest& request, Stream stream) = 0;
  // Returns the alignment of a call's workspace, saved and deferred blocks: TMA's, which XLA's
  // memory has too; other allocators give more. The simulator says 64.
  virtual int64_t block_alignment() const { return 128; }
  // Returns whether device memory is memory of the host too, which then may read what kernels have
  // written.
  virtual bool is_host_memory() const { return false; }
  // Returns whether launch() looks at the regions of its requests.
  virtual bool reads_regions() const { return true; }
  // Returns whether check_memory() checks anything.
  virtual bool checks_memory() const { return false; }
  // Checks whether kernels of this device may use the region, as far as can be told. Error
  // kTensorMismatch names the tensor.
  virtual Result<void> check_memory(const MemoryRegion& /*region*/) const { return {}; }
  // Returns the tensor at `address` (a multiple of 16, device memory) in the form that this
  // device's tensor copies take. Takes the host well under a microsecond and touches no device
  // memory. Error kInternal: a box that the hardware does not take.
  virtual Result<device::TensorMap> encode_tensor_map(const compiler::TensorBox& box,
                                                      const void* address) const = 0;

  // Lets kernels of this device read and write memory of another one of this process, for as long
  // as both live. Does nothing if they may already. Error kUnsupported: no link joins the two.
  virtual Result<void> reach(Device& peer) {
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                "the " + name() + " cannot reach memory of the " + peer.name());
  }

  // Allocates uninitialized memory of at least so many bytes, which other processes can map.
  // Errors: kUnsupported on the simulator, or if driver and GPU share no memory; kOutOfMemory.
  virtual Result<std::unique_ptr<Heap>> allocate_heap(int64_t /*bytes*/) {
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                "the " + name() + " has no memory that processes share",
                "run all ranks of simulated GPUs in one process");
  }
  // Maps memory that another process has allocated by allocate_heap() for the GPU with this PCI
  // bus id: its file, and the bytes that it has. Error kUnsupported: no link joins the two GPUs.
  virtual Result<std::unique_ptr<Heap>> map_heap(const FileDescriptor& /*file*/, int64_t bytes,
                                                 std::string_view /*gpu*/) {
    return allocate_heap(bytes);
  }
  // Waits for all streams of the device in this process.
  virtual Result<void> synchronize_all() { return synchronize(nullptr); }

  // Allocates uninitialized memory, 256-byte aligned; zero bytes give null. The simulator reports
  // reads of bytes that nothing wrote, and copies and fills that go beyond the memory in which they
  // begin. Each address is released once; null is fine. Error for any other address: kInvalidValue
  // on the simulator, kDriver on a GPU.
  virtual Result<void*> allocate(int64_t bytes) = 0;
  virtual Result<void> release(void* address) = 0;
  // Copy between host and device. They wait for what was started before on the default stream, and
  // are complete, for any stream, when they return.
  virtual Result<void> copy_to_device(void* destination, const void* source, int64_t bytes) = 0;
  virtual Result<void> copy_to_host(void* destination, const void* source, int64_t bytes) = 0;
  // Copies between two places of device memory on the stream, in order with launches; the places
  // must not overlap. Memory-bound kernels are judged by its speed.
  virtual Result<void> copy_on_device(void* destination, const void* source, int64_t bytes,
                                      Stream stream) = 0;
  // Sets bytes on the stream, in order with launches.
  virtual Result<void> fill(void* destination, std::byte value, int64_t bytes, Stream stream) = 0;
  virtual Result<void> synchronize(Stream stream) = 0;
  // Records what `queue` queues on the stream that it is given, as a CUDA graph; nothing runs. The
  // thread makes no other calls of CUDA meanwhile that a capture forbids. Errors: what `queue`
  // returns; kUnsupported on the simulator.
  virtual Result<std::unique_ptr<Recording>> record(
      const std::function<Result<void>(Stream)>& /*queue*/) {
    return fail(Stage::kLaunch, ErrorCode::kUnsupported, "the " + name() + " records no launches");
  }

  // Record marks of the time on a stream, for tables of kernel times. Once both were reached,
  // microseconds_between() returns the time from the first to the second.
  virtual Result<void*> record_mark(Stream stream) = 0;
  virtual Result<double> microseconds_between(void* first, void* second) = 0;
  virtual void release_mark(void* mark) = 0;
};

inline constexpr int32_t kCurrentGpu = -1;

// Opens the GPU `ordinal`, as CUDA counts the GPUs of this process. It opens the GPU in the calling
// thread's current context if that belongs to this GPU. Otherwise it takes its primary context,
// which is retained and never reset. kCurrentGpu means the GPU of the current context, or GPU 0 if
// there is none. An adopted context has to outlive the device. Equal kernels of several layers are
// loaded once; a kernel that no layer uses any more may stay loaded for the next. Destroying the
// device unloads them and waits for the GPU, unless the process is ending. Opens libcuda on first
// use. Plans for the device have its target: `target`, or else the one that is made for this GPU.
// Errors: kDriverMissing, kNoDevice, kUnsupported (the target cannot run on this GPU).
Result<std::unique_ptr<Device>> open_cuda_device(
    int32_t ordinal = kCurrentGpu, const std::optional<compiler::Target>& target = std::nullopt);

struct SimulatorOptions {
  uint64_t seed = 0;    // order in which fibers run and asynchronous copies complete
  int32_t workers = 0;  // host threads that run CTAs; 0: one per core
  compiler::Target target = compiler::simulator_target();  // whose limits it keeps
};
Result<std::unique_ptr<Device>> open_simulator(const SimulatorOptions& options = {});

// Makes a device current for a scope. Launches in it then need not make it current one by one, and
// libraries that take the GPU of the thread's context find it.
class EnteredDevice {
 public:
  explicit EnteredDevice(Device& device) : device_(device), is_entered_(device.enter()) {}
  ~EnteredDevice() {
    if (is_entered_ && *is_entered_) device_.leave();
  }
  EnteredDevice(const EnteredDevice&) = delete;
  EnteredDevice& operator=(const EnteredDevice&) = delete;

  Result<void> check() const {
    if (!is_entered_) return tl::make_unexpected(is_entered_.error());
    return {};
  }

 private:
  Device& device_;
  Result<bool> is_entered_;
};

// Tells for each GPU of this process, by ordinal, whether its kernels can reach the memory of each
// GPU: links[a][b]. A GPU reaches itself. Opens no context. Errors: kDriverMissing, kNoDevice.
Result<std::vector<std::vector<bool>>> gpu_links();

// Returns the links in words, such as "all 8 GPUs reach each other" or "1 GPU, no peers". Otherwise
// it lists the peers of each GPU: "0: 1; 1: 0; 2: none".
std::string links_text(const std::vector<std::vector<bool>>& links);

}  // namespace moejit::runtime
