// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/group_device.h"

#include "compiler/support/floating_point.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <new>

namespace moejit::runtime {
namespace {

// A kernel may be destroyed while launches of it are enqueued: they keep its image.
class GroupKernel final : public LoadedKernel {
 public:
  explicit GroupKernel(std::shared_ptr<const KernelImage> image) : image_(std::move(image)) {}
  std::optional<std::size_t> param_bytes() const override { return image_->param_bytes(); }
  const std::shared_ptr<const KernelImage>& image() const { return image_; }

 private:
  std::shared_ptr<const KernelImage> image_;
};

}  // namespace

int32_t sm_parts_of(const Launch& launch) {
  // A GPU of compute capability 9.0 keeps 1 KiB of shared memory for each CTA.
  constexpr int32_t kSmThreads = 2048;
  constexpr int64_t kSmSharedBytes = 228 * 1024;
  constexpr int64_t kReservedBytes = 1024;
  const auto by_memory =
      static_cast<int32_t>(kSmSharedBytes / (int64_t{launch.shared_bytes} + kReservedBytes));
  const int32_t most = std::min({launch.ctas_per_sm, kSmThreads / launch.threads, by_memory});
  return kSmParts / std::max(most, 1) * launch.cluster_ctas;
}

void GroupCore::enqueue(int32_t rank, Stream stream, StreamItem item) {
  item.host = host;
  schedule.enqueue(rank, stream, std::move(item));
}

Result<void> GroupCore::run(int32_t rank) {
  const DefaultFloatingPoint modes;  // kernels compute on the host's thread, which may have others
  if (report.empty() && rank >= 0 && schedule.is_dead(rank) && !schedule.is_idle(rank)) {
    return fail(Stage::kLaunch, ErrorCode::kSimulatorFault,
                fmt::format("rank {} was killed and has launches that are not over", rank));
  }
  if (report.empty() && !is_out_of_memory) {
    try {
      if (std::optional<std::string> broken = schedule.run(rank)) report = std::move(*broken);
    } catch (const std::bad_alloc&) {  // in the middle of a CTA, so that nothing can go on
      is_out_of_memory = true;
    }
  }
  if (is_out_of_memory) {
    return fail(Stage::kLaunch, ErrorCode::kOutOfMemory,
                "the host had no memory left for the ranks of a simulated group",
                "open a new group of devices");
  }
  if (!report.empty()) {
    return fail(Stage::kLaunch, ErrorCode::kSimulatorFault, report,
                fmt::format("the order of ranks and threads had seed {}", seed));
  }
  auto known = std::make_shared<WorldClock>(*host);
  schedule.add_finished_to(rank, *known);
  host = std::move(known);
  return {};
}

GroupDevice::GroupDevice(GroupCore& core, int32_t rank, compiler::Target target)
    : core_(core), rank_(rank), target_(std::move(target)) {}

Result<std::unique_ptr<LoadedKernel>> GroupDevice::load(const compiler::KernelBinary& binary) {
  MOEJIT_TRY_ASSIGN(std::shared_ptr<const KernelImage> image, KernelImage::load(binary));
  const std::lock_guard lock(core_.lock);
  core_.images.push_back(image);
  return std::make_unique<GroupKernel>(std::move(image));
}

Result<void> GroupDevice::launch(const LaunchRequest& request, Stream stream) {
  const auto* kernel = dynamic_cast<const GroupKernel*>(request.kernel);
  const std::lock_guard lock(core_.lock);
  const uint64_t seed = core_.schedule.seed_of_next_launch();
  auto launch = std::make_unique<RankLaunch>();
  MOEJIT_TRY_ASSIGN(
      launch->prepared,
      PreparedLaunch::make(request, kernel == nullptr ? nullptr : kernel->image().get(), target_,
                           allocations_, seed));
  if (request.ctas == 0) return {};
  launch->image = kernel->image();
  launch->sm_parts = sm_parts_of(launch->prepared->launch);
  core_.enqueue(rank_, stream, {.launch = std::move(launch), .work = {}, .host = {}});
  return {};
}

Result<void> GroupDevice::check(const void* address, int64_t bytes) const {
  const SymmetricMemory& memory = *core_.state.memory;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (bytes <= 0 || !memory.holds(begin)) return allocations_.check(address, bytes);
  const std::byte* heap = memory.heap(rank_);
  const int64_t offset = static_cast<const std::byte*>(address) - heap;
  if (offset >= 0 && offset + bytes <= memory.heap_bytes()) return {};
  return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
              fmt::format("{} bytes from byte {} of the heap of rank {} on, which has {}", bytes,
                          offset, rank_, memory.heap_bytes()));
}

void GroupDevice::mark_written(void* address, int64_t bytes) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto count = static_cast<uint64_t>(bytes);
  if (core_.state.memory->holds(begin)) {
    core_.state.memory->write_by_host(begin, count);
    core_.state.flags.forget(begin, count);
    core_.state.flags.changed(begin, count);
  } else if (InitialisedBits* bits = allocations_.find(address, bytes)) {
    bits->set_range(begin, count);
  }
}

void GroupDevice::copy_here(void* destination, const void* source, int64_t bytes) {
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  mark_written(destination, bytes);
}

void GroupDevice::enqueue(Stream stream, std::function<void()> work) {
  core_.enqueue(rank_, stream, {.launch = nullptr, .work = std::move(work), .host = {}});
}

Result<void> GroupDevice::release(void* address) {
  const std::lock_guard lock(core_.lock);
  if (!core_.schedule.is_dead(rank_)) MOEJIT_TRY(core_.run(rank_));
  return allocations_.release(address);
}

Result<void> GroupDevice::copy_to_device(void* destination, const void* source, int64_t bytes) {
  const std::lock_guard lock(core_.lock);
  MOEJIT_TRY(check(destination, bytes));
  MOEJIT_TRY(core_.run(rank_));
  if (bytes > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  mark_written(destination, bytes);
  return {};
}

Result<void> GroupDevice::copy_to_host(void* destination, const void* source, int64_t bytes) {
  const std::lock_guard lock(core_.lock);
  MOEJIT_TRY(check(source, bytes));
  MOEJIT_TRY(core_.run(rank_));
  if (bytes > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

Result<void> GroupDevice::copy_on_device(void* destination, const void* source, int64_t bytes,
                                         Stream stream) {
  const std::lock_guard lock(core_.lock);
  MOEJIT_TRY(check(source, bytes));
  MOEJIT_TRY(check(destination, bytes));
  enqueue(stream, [this, destination, source, bytes] {
    if (bytes > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes));
    mark_written(destination, bytes);
  });
  return {};
}

Result<void> GroupDevice::fill(void* destination, std::byte value, int64_t bytes, Stream stream) {
  const std::lock_guard lock(core_.lock);
  MOEJIT_TRY(check(destination, bytes));
  enqueue(stream, [this, destination, value, bytes] {
    if (bytes > 0) {
      std::memset(destination, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
    }
    mark_written(destination, bytes);
  });
  return {};
}

Result<void> GroupDevice::expire(const void* address, int64_t bytes, Stream stream) {
  const std::lock_guard lock(core_.lock);
  MOEJIT_TRY(check(address, bytes));
  if (bytes <= 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (!core_.state.memory->holds(begin)) {
    return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                fmt::format("address {:#x} is not in the heap of rank {}", begin, rank_));
  }
  enqueue(stream, [this, begin, bytes] {
    core_.state.memory->expire(begin, static_cast<uint64_t>(bytes));
  });
  return {};
}

Result<void> GroupDevice::synchronize(Stream /*stream*/) {
  const std::lock_guard lock(core_.lock);
  return core_.run(rank_);
}

Result<void*> GroupDevice::record_mark(Stream stream) {
  const std::lock_guard lock(core_.lock);
  auto* mark = new std::shared_ptr<uint64_t>(std::make_shared<uint64_t>(0));
  enqueue(stream, [this, time = *mark] { *time = core_.state.time.now(); });
  return mark;
}

Result<double> GroupDevice::microseconds_between(void* first, void* second) {
  const std::lock_guard lock(core_.lock);
  MOEJIT_TRY(core_.run(rank_));
  const auto time = [](void* mark) { return **static_cast<std::shared_ptr<uint64_t>*>(mark); };
  return static_cast<double>(time(second) - time(first)) / 1000.0;
}

void GroupDevice::release_mark(void* mark) { delete static_cast<std::shared_ptr<uint64_t>*>(mark); }

}  // namespace moejit::runtime
