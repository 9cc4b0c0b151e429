// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/plain_tensor_map.h"
#include "runtime/simulator/group/schedule.h"

#include <functional>
#include <mutex>

namespace moejit::runtime {

// What the devices of a group share. `lock` is held by whoever uses the rest.
struct GroupCore {
  GroupCore(int32_t ranks, int32_t sm_count_, uint64_t seed_)
      : schedule(state, ranks, sm_count_, seed_), sm_count(sm_count_), seed(seed_) {}

  // Enqueues an item behind what the host knows now.
  void enqueue(int32_t rank, Stream stream, StreamItem item);
  // Runs until a rank's streams are empty, or with -1 the streams of all ranks. The host then knows
  // what they did. Returns the first error of the group, now and from then on.
  Result<void> run(int32_t rank);

  // Reports name places in kernels' texts, and these names lie in the images. So no image is
  // unloaded before.
  std::vector<std::shared_ptr<const KernelImage>> images;
  std::mutex lock;
  RanksState state;
  Schedule schedule;
  int32_t sm_count;
  uint64_t seed;
  std::shared_ptr<const WorldClock> host = std::make_shared<const WorldClock>();
  std::string report;  // of the first error
  bool is_out_of_memory = false;
};

// A rank of a group as a device. What touches its streams is enqueued, and runs when the host waits
// for something.
class GroupDevice final : public Device {
 public:
  GroupDevice(GroupCore& core, int32_t rank, compiler::Target target);

  compiler::Target target() const override { return target_; }
  std::string name() const override { return "simulator"; }
  int32_t sm_count() const override { return core_.sm_count; }
  int64_t block_alignment() const override { return 64; }
  bool is_host_memory() const override { return true; }

  Result<std::unique_ptr<LoadedKernel>> load(const compiler::KernelBinary& binary) override;
  Result<void> launch(const LaunchRequest& request, Stream stream) override;
  Result<device::TensorMap> encode_tensor_map(const compiler::TensorBox& box,
                                              const void* address) const override {
    return encode_plain_tensor_map(box, address);
  }

  Result<void*> allocate(int64_t bytes) override { return allocations_.allocate(bytes); }
  Result<void> release(void* address) override;
  Result<void> copy_to_device(void* destination, const void* source, int64_t bytes) override;
  Result<void> copy_to_host(void* destination, const void* source, int64_t bytes) override;
  Result<void> copy_on_device(void* destination, const void* source, int64_t bytes,
                              Stream stream) override;
  Result<void> fill(void* destination, std::byte value, int64_t bytes, Stream stream) override;
  Result<void> synchronize(Stream stream) override;

  // The time of a mark is virtual.
  Result<void*> record_mark(Stream stream) override;
  Result<double> microseconds_between(void* first, void* second) override;
  void release_mark(void* mark) override;

  Result<void> expire(const void* address, int64_t bytes, Stream stream);

  // Copies from memory of any rank to memory of this one, at once. The core's lock is held.
  void copy_here(void* destination, const void* source, int64_t bytes);

 private:
  Result<void> check(const void* address, int64_t bytes) const;
  void mark_written(void* address, int64_t bytes);
  void enqueue(Stream stream, std::function<void()> work);

  GroupCore& core_;
  int32_t rank_;
  compiler::Target target_;
  Allocations allocations_;
};

}  // namespace moejit::runtime
