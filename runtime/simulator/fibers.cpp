// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/fibers.h"

#include <boost/context/detail/fcontext.hpp>
#include <new>
#include <sys/mman.h>

namespace moejit::runtime {
namespace {

constexpr std::size_t kPageBytes = 4096;
// The tops of neighboring stacks differ in their low address bits. Otherwise the hot ends of all
// stacks would fall into the same few sets of the processor's caches.
constexpr std::size_t kColorBytes = 28 * 1024;
constexpr std::size_t kColorStep = 17 * 64;
constexpr std::size_t kStrideBytes = StackSlab::kStackBytes + kColorBytes + kPageBytes;
constexpr std::size_t kStacksOffset = 4 * kPageBytes;
static_assert(sizeof(sim::Machine) <= kStacksOffset);
static_assert(kStacksOffset + StackSlab::kMaxThreads * kStrideBytes <= sim::kSlabBytes);

}  // namespace

std::unique_ptr<StackSlab> StackSlab::create() {
  // Twice the size contains an aligned slab; the rest is given back.
  void* mapped = mmap(nullptr, 2 * sim::kSlabBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (sim::kSlabBytes - reinterpret_cast<uintptr_t>(mapped) % sim::kSlabBytes) % sim::kSlabBytes;
  if (before > 0) munmap(first, before);
  munmap(first + before + sim::kSlabBytes, sim::kSlabBytes - before);
  return std::unique_ptr<StackSlab>(new StackSlab(first + before));
}

StackSlab::~StackSlab() { munmap(base_, sim::kSlabBytes); }

std::byte* StackSlab::stack_top(int32_t thread) const {
  const auto index = static_cast<std::size_t>(thread);
  const std::size_t color = index * kColorStep % kColorBytes;
  return base_ + kStacksOffset + (index + 1) * kStrideBytes - color;
}

void StackSlab::guard(int32_t threads) {
  for (; guarded_ < threads; ++guarded_) {
    std::byte* lowest = base_ + kStacksOffset + static_cast<std::size_t>(guarded_) * kStrideBytes;
    // Each guard splits a mapping, and the number of mappings is limited: go on without guards.
    if (mprotect(lowest, kPageBytes, PROT_NONE) != 0) return;
  }
}

}  // namespace moejit::runtime

#if defined(__SANITIZE_ADDRESS__)
#define MOEJIT_SANITIZED_STACKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOEJIT_SANITIZED_STACKS 1
#endif
#endif
#if defined(MOEJIT_SANITIZED_STACKS)
#include <sanitizer/asan_interface.h>
#endif

namespace moejit::runtime {
namespace {

namespace context = boost::context::detail;

// Picks one of the set bits by a random rotation: nearly uniform and without a loop.
int32_t pick_bit(uint32_t bits, uint32_t random) {
  const int32_t turn = static_cast<int32_t>(random & 31u);
  return (std::countr_zero(std::rotr(bits, turn)) + turn) & 31;
}

// Clears the red zones that frames of forgotten fibers leave behind.
void forget_red_zones([[maybe_unused]] std::byte* top) {
#if defined(MOEJIT_SANITIZED_STACKS)
  __asan_unpoison_memory_region(top - StackSlab::kStackBytes, StackSlab::kStackBytes);
#endif
}

// Notes where the fiber that jumped here can be continued.
void note_origin(const context::transfer_t& transfer) {
  *static_cast<void**>(transfer.data) = transfer.fctx;
}

}  // namespace

struct FiberEntry {
  static void enter(context::transfer_t transfer) {
    note_origin(transfer);
    auto* fibers = static_cast<Fibers*>(sim::machine()->fibers);
    fibers->run_body();
  }
};

void Fibers::begin(int32_t threads, uint64_t seed, const Work& work) {
  random_ = Random(seed);
  work_ = work;
  constexpr std::array<uint64_t, 4> kLeaveWarpMasks{3, 15, 63, 255};
  leave_warp_mask_ = kLeaveWarpMasks[random_.below(4)];
  alive_ = threads;
  slab_.guard(threads);
  slab_.machine().fibers = this;
  ready_.fill(0);
  ready_warps_ = 0;
  for (int32_t thread = 0; thread < threads; ++thread) {
    std::byte* top = slab_.stack_top(thread);
    forget_red_zones(top);
    contexts_[static_cast<std::size_t>(thread)] =
        context::make_fcontext(top, StackSlab::kStackBytes, &FiberEntry::enter);
    wake(thread / sim::kWarpLanes, 1u << (thread % sim::kWarpLanes));
  }
}

Fibers::Outcome Fibers::go_on() {
  outcome_ = Outcome::kNobodyReady;
  const int32_t next = take_ready();
  if (next >= 0) jump(next, &runner_);
  return alive_ == 0 && outcome_ != Outcome::kNoMemory ? Outcome::kAllExited : outcome_;
}

void Fibers::run_body() {
  work_.body(work_.context);
  try {
    work_.on_exit(work_.context);
    --alive_;
    leave();
  } catch (const std::bad_alloc&) {  // below are no frames that could be unwound
  }
  stop(Outcome::kNoMemory);
}

void Fibers::suspend() {
  const int32_t self = current();
  const int32_t next = take_ready();
  if (next == self) return;
  jump(next, &contexts_[static_cast<std::size_t>(self)]);
}

void Fibers::set_aside() {
  const int32_t self = current();
  wake(self / sim::kWarpLanes, 1u << (self % sim::kWarpLanes));
  jump(-1, &contexts_[static_cast<std::size_t>(self)]);
}

void Fibers::stop(Outcome outcome) {
  outcome_ = outcome;
  void* nobody_returns_here = nullptr;
  jump(-1, &nobody_returns_here);
  __builtin_unreachable();
}

// Takes a thread out of the ready set and returns it, or -1 if there is none.
int32_t Fibers::take_ready() {
  while (ready_warps_ == 0) {
    if (alive_ == 0 || !work_.on_idle(work_.context)) return -1;
  }
  const uint64_t random = random_.next();
  if ((ready_warps_ >> warp_ & 1u) == 0 || (random >> 40 & leave_warp_mask_) == 0) {
    warp_ = pick_bit(ready_warps_, static_cast<uint32_t>(random));
  }
  uint32_t& ready = ready_[static_cast<std::size_t>(warp_)];
  const int32_t lane = pick_bit(ready, static_cast<uint32_t>(random >> 32));
  ready &= ~(1u << lane);
  if (ready == 0) ready_warps_ &= ~(1u << warp_);
  return warp_ * sim::kWarpLanes + lane;
}

// Continues thread `next`, or the caller of run() if it is -1. Returns when somebody continues the
// context that was noted in `from`.
void Fibers::jump(int32_t next, void** from) {
  void* to = runner_;
  if (next >= 0) {
    to = contexts_[static_cast<std::size_t>(next)];
    slab_.machine().thread = next;
  }
  note_origin(context::jump_fcontext(to, from));
}

void Fibers::leave() {
  void* nobody_returns_here = nullptr;
  jump(take_ready(), &nobody_returns_here);
  __builtin_unreachable();
}

}  // namespace moejit::runtime
