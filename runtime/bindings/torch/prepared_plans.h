// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/plan_text.h"

#include <atomic>
#include <cstdint>
#include <dlpack/dlpack.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

struct moejit_device;
struct moejit_engine;

namespace moejit::torch {

// Returns the number of a device among a process's devices: the number of a GPU, or -1 for the CPU.
inline int32_t device_key(DLDevice device) {
  return device.device_type == kDLCUDA ? device.device_id : -1;
}

// The engine and device that preparing needs. Both live until the process ends.
struct Place {
  moejit_engine* engine = nullptr;
  moejit_device* device = nullptr;
};

// Returns the engine that all operators share, and the device. Opens them in the first call.
Place shared_place(int32_t device_key);

// Checks that a text is for the device's target and this version, and returns the target.
std::string check_text(const PlanText& text, std::string_view argument,
                       const moejit_device* device);

// Returns what to do if a first call comes in a capture, or if a frozen cache lacks a kernel. In
// the second case the description, `json`, follows in a line of its own. Empty for other codes.
// `max_tokens` is 0 for operations.
std::string hint_of_preparing(int32_t code, std::string_view json, int64_t max_tokens = 0);

// What operators have prepared of one kind, by device and text. It is never destroyed: graphs of
// torch may hold kernels, and threads may use it at the end of the process.
template <typename Ready>
class PreparedPlans {
 public:
  // Returns what `prepare` made of this text; calls it in the first call. Threads may call it at
  // any time. Later calls take a shared lock and look the text up. Two threads that ask for
  // different texts prepare them at the same time.
  template <typename Prepare>
  const Ready& get(std::string_view text, DLDevice device, Prepare&& prepare) {
    const int32_t key = device_key(device);
    Entry& entry = entry_of(key, text);
    if (entry.is_ready.load(std::memory_order_acquire)) return entry.ready;
    const std::scoped_lock preparing(entry.preparing);
    if (entry.is_ready.load(std::memory_order_relaxed)) return entry.ready;
    entry.ready = prepare(text, shared_place(key));
    entry.is_ready.store(true, std::memory_order_release);
    return entry.ready;
  }

 private:
  // A place in the map, whose content may still have to be prepared.
  struct Entry {
    std::mutex preparing;
    std::atomic<bool> is_ready = false;
    Ready ready;
  };
  struct TextHash {
    using is_transparent = void;
    // Hashes the beginning, which holds the digest of the plan; the rest adds nothing.
    std::size_t operator()(std::string_view text) const {
      constexpr std::size_t kBeginning = 80;
      return std::hash<std::string_view>()(text.substr(0, kBeginning));
    }
  };
  using Entries =
      std::unordered_map<std::string, std::unique_ptr<Entry>, TextHash, std::equal_to<>>;

  Entry& entry_of(int32_t key, std::string_view text) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = entries_.find(key); found != entries_.end())
        if (const auto entry = found->second.find(text); entry != found->second.end())
          return *entry->second;
    }
    const std::unique_lock lock(mutex_);
    std::unique_ptr<Entry>& entry = entries_[key][std::string(text)];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    return *entry;
  }

  std::shared_mutex mutex_;
  std::map<int32_t, Entries> entries_;
};

}  // namespace moejit::torch
