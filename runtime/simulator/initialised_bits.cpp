// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/global_memory.h"

#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <new>
#include <sys/mman.h>

namespace moejit::runtime {
namespace {

constexpr std::size_t kAlignment = 256;

// Returns the bits of an aligned access of at most 8 bytes. They lie in one byte.
uint8_t field(uintptr_t offset, uint32_t bytes) {
  return static_cast<uint8_t>(((1u << bytes) - 1) << (offset % 8));
}

}  // namespace

InitialisedBits::InitialisedBits(uintptr_t address, int64_t bytes)
    : address_(address),
      bytes_(static_cast<uint64_t>(bytes)),
      bits_(static_cast<uint8_t*>(std::calloc(bytes_ / 8 + 2, 1))) {
  if (bits_ == nullptr) throw std::bad_alloc();
}

InitialisedBits::~InitialisedBits() { std::free(bits_); }

bool InitialisedBits::all(uintptr_t address, uint32_t bytes) const {
  const uintptr_t offset = address - address_;
  const uint8_t* byte = bits_ + offset / 8;
  if (bytes <= 8) {
    const uint8_t wanted = field(offset, bytes);
    return (__atomic_load_n(byte, __ATOMIC_RELAXED) & wanted) == wanted;
  }
  return (__atomic_load_n(byte, __ATOMIC_RELAXED) & __atomic_load_n(byte + 1, __ATOMIC_RELAXED)) ==
         0xff;
}

bool InitialisedBits::all_of_range(uintptr_t address, uint64_t bytes) const {
  const uintptr_t end = address + bytes;
  for (; address < end && (address - address_) % 8 != 0; ++address) {
    if (!all(address, 1)) return false;
  }
  for (; end - address >= 8; address += 8) {
    if (!all(address, 8)) return false;
  }
  for (; address < end; ++address) {
    if (!all(address, 1)) return false;
  }
  return true;
}

void InitialisedBits::set(uintptr_t address, uint32_t bytes) {
  const uintptr_t offset = address - address_;
  uint8_t* byte = bits_ + offset / 8;
  if (bytes >= 8) {
    __atomic_store_n(byte, uint8_t{0xff}, __ATOMIC_RELAXED);
    if (bytes == 16) __atomic_store_n(byte + 1, uint8_t{0xff}, __ATOMIC_RELAXED);
    return;
  }
  const uint8_t wanted = field(offset, bytes);
  if ((__atomic_load_n(byte, __ATOMIC_RELAXED) & wanted) != wanted) {
    __atomic_fetch_or(byte, wanted, __ATOMIC_RELAXED);
  }
}

void InitialisedBits::set_range(uintptr_t address, uint64_t bytes) {
  const uintptr_t end = address + bytes;
  for (; address < end && (address - address_) % 8 != 0; ++address) set(address, 1);
  const uint64_t whole = (end - address) / 8;
  std::memset(bits_ + (address - address_) / 8, 0xff, whole);
  for (address += whole * 8; address < end; ++address) set(address, 1);
}

void InitialisedBits::clear_range(uintptr_t address, uint64_t bytes) {
  const uintptr_t end = address + bytes;
  const auto clear = [&](uintptr_t at) {
    __atomic_fetch_and(bits_ + (at - address_) / 8, static_cast<uint8_t>(~field(at - address_, 1)),
                       __ATOMIC_RELAXED);
  };
  for (; address < end && (address - address_) % 8 != 0; ++address) clear(address);
  const uint64_t whole = (end - address) / 8;
  std::memset(bits_ + (address - address_) / 8, 0, whole);
  for (address += whole * 8; address < end; ++address) clear(address);
}

Allocations::~Allocations() {
  for (auto& [address, bits] : allocations_) {
    ::operator delete (reinterpret_cast<void*>(address), std::align_val_t{kAlignment});
  }
}

Result<void*> Allocations::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* address = bytes < 0 ? nullptr
                            : ::operator new (static_cast<std::size_t>(bytes),
                                              std::align_val_t{kAlignment}, std::nothrow);
  if (address == nullptr) {
    return fail(Stage::kLaunch, ErrorCode::kOutOfMemory,
                fmt::format("the simulator cannot allocate {} bytes", bytes));
  }
  const auto key = reinterpret_cast<uintptr_t>(address);
  auto bits = std::make_unique<InitialisedBits>(key, bytes);
  const std::unique_lock lock(mutex_);
  allocations_.emplace(key, std::move(bits));
  return address;
}

Result<void> Allocations::release(void* address) {
  if (address == nullptr) return {};
  {
    const std::unique_lock lock(mutex_);
    if (allocations_.erase(reinterpret_cast<uintptr_t>(address)) == 0)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("{} is no memory of the simulator, or was released already",
                              fmt::ptr(address)));
  }
  ::operator delete (address, std::align_val_t{kAlignment});
  return {};
}

InitialisedBits* Allocations::allocation_of(uintptr_t address) const {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  InitialisedBits* const bits = std::prev(next)->second.get();
  return bits->contains(address, 1) ? bits : nullptr;
}

Result<void> Allocations::check(const void* address, int64_t bytes) const {
  const auto key = reinterpret_cast<uintptr_t>(address);
  const std::shared_lock lock(mutex_);
  const InitialisedBits* const bits = bytes > 0 ? allocation_of(key) : nullptr;
  if (bits == nullptr || bits->contains(key, static_cast<uint64_t>(bytes))) return {};
  return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
              fmt::format("{} bytes from byte {} of an allocation of {} bytes on", bytes,
                          key - bits->address(), bits->bytes()));
}

InitialisedBits* Allocations::find(const void* address, int64_t bytes) {
  const auto key = reinterpret_cast<uintptr_t>(address);
  const std::shared_lock lock(mutex_);
  InitialisedBits* const bits = allocation_of(key);
  return bits != nullptr && bits->contains(key, static_cast<uint64_t>(bytes)) ? bits : nullptr;
}

}  // namespace moejit::runtime
