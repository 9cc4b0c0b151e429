// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/moejit_sim/machine.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace moejit::runtime {

// SplitMix64: any seed is good, and neighboring seeds give unrelated sequences.
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Returns a number from 0 to limit - 1.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(((next() >> 32) * limit) >> 32); }

 private:
  uint64_t state_;
};

// Stacks for the 1024 fibers of one CTA, with the Machine in front (moejit_sim/machine.h). It is
// only address space: a page costs memory once a fiber has touched it.
class StackSlab {
 public:
  static constexpr int32_t kMaxThreads = 1024;

  // Returns nullptr if there is no address space.
  static std::unique_ptr<StackSlab> create();
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;

  sim::Machine& machine() { return *reinterpret_cast<sim::Machine*>(base_); }

  // stack_top() returns the address one past a thread's stack.
  std::byte* stack_top(int32_t thread) const;
  static constexpr std::size_t kStackBytes = 64 * 1024;

  // Sets guard pages below the stacks of threads 0 to threads - 1, as far as the system grants
  // them.
  void guard(int32_t threads);

 private:
  explicit StackSlab(std::byte* base) : base_(base) {}
  std::byte* base_;
  int32_t guarded_ = 0;
};

inline constexpr int32_t kMaxWarps = StackSlab::kMaxThreads / sim::kWarpLanes;

// The threads of one CTA as fibers, run one at a time in a random order. A fiber runs until it
// suspends; any ready fiber may be next. Lanes of one warp follow each other most of the time,
// which keeps caches warm. How often a warp is left differs from CTA to CTA, so that both fine and
// coarse interleavings are tried.
class Fibers {
 public:
  // The functions that the fibers run; all get the context. A fiber is `body` and then `on_exit`.
  // If no fiber is ready, `on_idle` is called until it has woken one or returns false.
  struct Work {
    void (*body)(void* context) = nullptr;
    void (*on_exit)(void* context) = nullptr;
    bool (*on_idle)(void* context) = nullptr;
    void* context = nullptr;
  };

  explicit Fibers(StackSlab& slab) : slab_(slab) {}

  enum class Outcome { kAllExited, kStopped, kNobodyReady, kNoMemory };

  // Runs `threads` fibers. Returns when all have exited, or when those left are suspended and
  // nothing wakes them. Returns earlier when one stopped the run, or when `on_exit` or `on_idle`
  // threw std::bad_alloc behind its body (kNoMemory). Fibers that have not exited are forgotten:
  // nothing on their stacks is destroyed.
  Outcome run(int32_t threads, uint64_t seed, const Work& work) {
    begin(threads, seed, work);
    return go_on();
  }
  // The two halves of run(). After kNobodyReady fibers that somebody has woken since go on.
  void begin(int32_t threads, uint64_t seed, const Work& work);
  Outcome go_on();
  bool is_anybody_ready() const { return ready_warps_ != 0; }

  // The next three must be called only from within a fiber.
  void suspend();    // until somebody wakes this fiber
  void set_aside();  // ends go_on() with kNobodyReady, though this fiber is ready
  // Ends go_on() at once, with this outcome.
  [[noreturn]] void stop(Outcome outcome = Outcome::kStopped);

  void wake(int32_t warp, uint32_t lanes) {
    ready_[static_cast<std::size_t>(warp)] |= lanes;
    ready_warps_ |= lanes != 0 ? 1u << warp : 0u;
  }
  int32_t current() const { return slab_.machine().thread; }
  Random& random() { return random_; }

 private:
  friend struct FiberEntry;
  [[noreturn]] void run_body();
  int32_t take_ready();
  void jump(int32_t next, void** from);
  [[noreturn]] void leave();

  StackSlab& slab_;
  Random random_;
  Work work_;
  uint64_t leave_warp_mask_ = 0;
  int32_t warp_ = 0;
  int32_t alive_ = 0;
  Outcome outcome_ = Outcome::kAllExited;
  uint32_t ready_warps_ = 0;
  std::array<uint32_t, kMaxWarps> ready_{};
  void* runner_ = nullptr;
  std::array<void*, StackSlab::kMaxThreads> contexts_{};
};

}  // namespace moejit::runtime
