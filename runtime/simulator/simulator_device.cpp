// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/floating_point.h"
#include "runtime/device.h"
#include "runtime/plain_tensor_map.h"
#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/prepared_launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <fmt/core.h>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>

namespace moejit::runtime {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The CTAs of one launch, by clusters, in a random order, shared by several host threads. If
// several report, it keeps the report of the earliest CTA in that order, so that the number of host
// threads does not matter.
class CtaQueue {
 public:
  explicit CtaQueue(const Launch& launch)
      : launch_(launch), order_(static_cast<std::size_t>(launch.ctas / launch.cluster_ctas)) {
    std::iota(order_.begin(), order_.end(), 0);
    Random random(launch.seed);
    for (std::size_t i = order_.size(); i > 1; --i) {
      std::swap(order_[i - 1], order_[random.below(static_cast<uint32_t>(i))]);
    }
  }

  // Runs CTAs until none is left or one of them has failed. Throws std::bad_alloc.
  void run(Cta& cta) {
    for (;;) {
      const std::size_t position = next_.fetch_add(1, std::memory_order_relaxed);
      if (position >= std::min(order_.size(), failed_.load(std::memory_order_acquire))) return;
      std::optional<std::string> report = cta.run(launch_, order_[position] * launch_.cluster_ctas);
      if (!report) continue;
      const std::lock_guard lock(mutex_);
      if (position < failed_.load(std::memory_order_relaxed)) {
        failed_.store(position, std::memory_order_release);
        report_ = std::move(*report);
      }
    }
  }

  // Records that a thread has no memory to go on with, so that no CTA is begun any more.
  void fail_without_memory() {
    is_out_of_memory_.store(true, std::memory_order_relaxed);
    failed_.store(0, std::memory_order_release);
  }

  // Returns the result. Must be called after all threads have returned from run().
  Result<void> result() {
    if (is_out_of_memory_)
      return fail(Stage::kLaunch, ErrorCode::kOutOfMemory, "the host has no memory left");
    if (failed_.load() == kNone) return {};
    // The simulator does not see what a program writes through a pointer of its own.
    const bool is_unwritten = report_.find(kNothingHasWritten) != std::string::npos;
    return fail(Stage::kLaunch, ErrorCode::kSimulatorFault, std::move(report_),
                fmt::format("{}the order of threads had seed {}",
                            is_unwritten ? "copy to the device's memory or fill it with the "
                                           "functions of the device, since the simulator does not "
                                           "see what else the host writes there; "
                                         : "",
                            launch_.seed));
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  const Launch& launch_;
  std::vector<int32_t> order_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> failed_{kNone};
  std::atomic<bool> is_out_of_memory_{false};
  std::mutex mutex_;
  std::string report_;
};

class Simulator final : public Device {
 public:
  explicit Simulator(const SimulatorOptions& options) : options_(options) {
    if (options_.workers <= 0) {
      options_.workers = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    }
  }

  compiler::Target target() const override { return options_.target; }
  std::string name() const override { return "simulator"; }
  int32_t sm_count() const override { return 4; }
  int64_t block_alignment() const override { return 64; }  // as PyTorch aligns memory of the CPU
  bool is_host_memory() const override { return true; }

  Result<std::unique_ptr<LoadedKernel>> load(const compiler::KernelBinary& binary) override {
    MOEJIT_TRY_ASSIGN(std::unique_ptr<LoadedKernel> kernel, KernelImage::load(binary));
    return kernel;
  }
  Result<void> launch(const LaunchRequest& request, Stream stream) override;
  Result<device::TensorMap> encode_tensor_map(const compiler::TensorBox& box,
                                              const void* address) const override {
    return encode_plain_tensor_map(box, address);
  }

  Result<void*> allocate(int64_t bytes) override { return allocations_.allocate(bytes); }
  Result<void> release(void* address) override { return allocations_.release(address); }
  Result<void> copy_to_device(void* destination, const void* source, int64_t bytes) override {
    MOEJIT_TRY(allocations_.check(destination, bytes));
    copy(destination, source, bytes);
    mark_written(destination, bytes);
    return {};
  }
  Result<void> copy_to_host(void* destination, const void* source, int64_t bytes) override {
    MOEJIT_TRY(allocations_.check(source, bytes));
    copy(destination, source, bytes);
    return {};
  }
  Result<void> copy_on_device(void* destination, const void* source, int64_t bytes,
                              Stream /*stream*/) override {
    MOEJIT_TRY(allocations_.check(source, bytes));
    return copy_to_device(destination, source, bytes);
  }
  Result<void> fill(void* destination, std::byte value, int64_t bytes, Stream /*stream*/) override {
    MOEJIT_TRY(allocations_.check(destination, bytes));
    if (bytes > 0) {
      std::memset(destination, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
    }
    mark_written(destination, bytes);
    return {};
  }
  Result<void> synchronize(Stream /*stream*/) override { return {}; }

  Result<void*> record_mark(Stream /*stream*/) override {
    return new SteadyClock::time_point(SteadyClock::now());
  }
  Result<double> microseconds_between(void* first, void* second) override {
    const auto elapsed = *static_cast<SteadyClock::time_point*>(second) -
                         *static_cast<SteadyClock::time_point*>(first);
    return std::chrono::duration<double, std::micro>(elapsed).count();
  }
  void release_mark(void* mark) override { delete static_cast<SteadyClock::time_point*>(mark); }

 private:
  static void copy(void* destination, const void* source, int64_t bytes) {
    if (bytes > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  }
  void mark_written(void* address, int64_t bytes) {
    if (bytes <= 0) return;
    if (InitialisedBits* bits = allocations_.find(address, bytes)) {
      bits->set_range(reinterpret_cast<uintptr_t>(address), static_cast<uint64_t>(bytes));
    }
  }
  static const KernelImage* image_of(const LoadedKernel* kernel) {
    return dynamic_cast<const KernelImage*>(kernel);
  }
  Result<void> run(const Launch& launch);

  SimulatorOptions options_;
  Allocations allocations_;
  CtaPool ctas_;
};

Result<void> Simulator::launch(const LaunchRequest& request, Stream /*stream*/) {
  MOEJIT_TRY_ASSIGN(const auto prepared,
                    PreparedLaunch::make(request, image_of(request.kernel), options_.target,
                                         allocations_, options_.seed));
  if (request.ctas == 0) return {};
  return run(prepared->launch);
}

Result<void> Simulator::run(const Launch& launch) {
  CtaQueue queue(launch);
  // No exception may leave a thread.
  const auto work = [&](std::unique_ptr<Cta> cta) {
    // Kernels compute on the host's threads, which may have other modes.
    const DefaultFloatingPoint modes;
    try {
      queue.run(*cta);
      ctas_.give_back(std::move(cta));
    } catch (const std::bad_alloc&) {
      queue.fail_without_memory();
    }
  };
  std::unique_ptr<Cta> own = ctas_.take();
  if (own == nullptr) {
    return fail(Stage::kLaunch, ErrorCode::kOutOfMemory, "no address space for simulated threads");
  }
  std::vector<std::jthread> helpers;  // joined even if no more can be started
  try {
    for (int32_t i = 1; i < std::min(options_.workers, launch.ctas); ++i) {
      std::unique_ptr<Cta> cta = ctas_.take();
      if (cta == nullptr) break;
      helpers.emplace_back(work, std::move(cta));
    }
  } catch (const std::exception&) {
    // There is no memory or no thread for more of them; the threads that are there do the work.
  }
  work(std::move(own));
  for (std::jthread& helper : helpers) helper.join();
  return queue.result();
}

}  // namespace

Result<std::unique_ptr<Device>> open_simulator(const SimulatorOptions& options) {
  return std::make_unique<Simulator>(options);
}

}  // namespace moejit::runtime
