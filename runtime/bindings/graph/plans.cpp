// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/plans.h"

#include "runtime/bindings/graph/failure.h"
#include "runtime/bindings/graph/group_plans.h"
#include "runtime/bindings/graph/plan_text.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

namespace moejit::graph {
namespace {

// Returns the number of a device among a process's devices: the number of a GPU, or -1 for the CPU.
int32_t device_key(DLDevice device) {
  return device.device_type == kDLCUDA ? device.device_id : -1;
}

void warn(void* /*context*/, const char* text) { std::fprintf(stderr, "moejit: %s\n", text); }

// The engine and the device that preparing needs. All bindings of the process have the same ones.
struct Place {
  moejit_engine* engine = nullptr;
  moejit_device* device = nullptr;
};

Place shared_place(DLDevice device) {
  moejit_engine_options options{};
  options.struct_size = sizeof options;
  options.warn = warn;
  Place place;
  check(moejit_engine_shared(&options, &place.engine));
  check(moejit_device_shared(device, &place.device));
  return place;
}

moejit_device_info info_of(const moejit_device* device) {
  moejit_device_info info{};
  info.struct_size = sizeof info;
  check(moejit_device_get_info(device, &info));
  return info;
}

// Returns what to do if a first call comes in a capture, or if a frozen cache lacks a kernel. In
// the second case the description, `json`, follows in a line of its own. Empty for other codes.
std::string hint_of_preparing(moejit_error_code code, std::string_view json,
                              const moejit_plan_info& plan) {
  if (code == MOEJIT_ERROR_STREAM_CAPTURE)
    return "call it once with tensors of these dtypes before the capture: the first call loads the "
           "kernels";
  if (code != MOEJIT_ERROR_CACHE_MISS) return "";
  std::string hint = "LAYER is a file with the last line of this message";
  if (plan.kind != MOEJIT_KIND_OPERATION)
    hint += "; with torch, moejit.torch.build(model, tokens=" + std::to_string(plan.max_tokens) +
            ", target=..., pack=\"kernels.moejitpack\") makes all kernels of a model";
  return hint + "\n" + std::string(json);
}

struct PlanDeleter {
  void operator()(moejit_plan* plan) const { moejit_plan_destroy(plan); }
};

std::unique_ptr<ReadyPlan> prepare(const PlanText& text, const Place& place) {
  const moejit_device_info device = info_of(place.device);
  if (text.target != device.target)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         "argument plan: it is planned for " + std::string(text.target) +
             ", the tensors are on a device of " + device.target,
         "make the text with the device of the tensors");
  // Checks the version before the JSON is read: another version may have other fields.
  check_is_current(text, moejit_version(), text.digest);
  moejit_plan* created = nullptr;
  check(moejit_plan_create(text.json.data(), text.json.size(), device.target, nullptr, &created));
  std::unique_ptr<moejit_plan, PlanDeleter> owner(created);
  auto ready = std::make_unique<ReadyPlan>();
  read_plan(created, *ready);
  ready->device = place.device;
  ready->place = device.dl_device;
  check_is_current(text, moejit_version(), ready->info.plan_digest);
  const moejit_error_code code = moejit_plan_prepare(created, place.engine, place.device);
  check(code, hint_of_preparing(code, text.json, ready->info));
  owner.release();
  return ready;
}

// A place in the map, whose plan may still have to be prepared.
struct Entry {
  std::mutex preparing;
  std::atomic<const ReadyPlan*> ready = nullptr;
};

struct TextHash {
  using is_transparent = void;
  // Hashes the beginning, which holds the digest of the plan; the rest adds nothing.
  std::size_t operator()(std::string_view text) const {
    constexpr std::size_t kBeginning = 80;
    return std::hash<std::string_view>()(text.substr(0, kBeginning));
  }
};
using Entries = std::unordered_map<std::string, std::unique_ptr<Entry>, TextHash, std::equal_to<>>;

// What operators have prepared, by device and text. It is never destroyed: graphs of a host may
// hold kernels, and threads may use it at the end of the process.
struct Prepared {
  std::shared_mutex mutex;
  std::map<int32_t, Entries> entries;

  Entry* find(int32_t device, std::string_view text) {
    const std::shared_lock lock(mutex);
    const auto of_device = entries.find(device);
    if (of_device == entries.end()) return nullptr;
    const auto found = of_device->second.find(text);
    return found == of_device->second.end() ? nullptr : found->second.get();
  }
  Entry& add(int32_t device, std::string_view text) {
    const std::unique_lock lock(mutex);
    std::unique_ptr<Entry>& entry = entries[device][std::string(text)];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    return *entry;
  }
};

}  // namespace

void read_plan(moejit_plan* plan, ReadyPlan& ready) {
  static std::atomic<int64_t> numbers = 0;
  ready.plan = plan;
  ready.number = ++numbers;
  ready.info.struct_size = sizeof ready.info;
  check(moejit_plan_get_info(plan, &ready.info));
  read_rows(plan, ready.info, ready.rows);
}

const CallRow& ReadyPlan::find_call(const char* name) const {
  const auto found = std::ranges::find(rows.calls, name, &CallRow::name);
  if (found != rows.calls.end()) return *found;
  moejit_call none{};
  none.struct_size = sizeof none;
  check(moejit_plan_call(plan, name, &none));
  fail(MOEJIT_ERROR_INTERNAL, std::string("the plan did not refuse a call ") + name);
}

moejit_plan_sizes ReadyPlan::sizes(int64_t tokens) const {
  // A call mostly has the plan and the tokens of the thread's last call.
  struct Last {
    int64_t number = 0;
    int64_t tokens = 0;
    moejit_plan_sizes sizes{};
  };
  thread_local Last last;
  if (last.number == number && last.tokens == tokens) return last.sizes;
  moejit_plan_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  check(moejit_plan_get_sizes(plan, tokens, &sizes));
  last = {number, tokens, sizes};
  return sizes;
}

const ReadyPlan& ready_plan(std::string_view text, DLDevice device) {
  static auto* const prepared = new Prepared;
  const int32_t key = device_key(device);
  Entry* entry = prepared->find(key, text);
  if (entry == nullptr) {
    const PlanText read = read_plan_text(text);
    if (!read.group.empty()) return ready_group_plan(text, read.group, device);
    entry = &prepared->add(key, text);
  }
  if (const ReadyPlan* ready = entry->ready.load(std::memory_order_acquire)) return *ready;
  const std::scoped_lock preparing(entry->preparing);
  if (const ReadyPlan* ready = entry->ready.load(std::memory_order_relaxed)) return *ready;
  const ReadyPlan* const made = prepare(read_plan_text(text), shared_place(device)).release();
  entry->ready.store(made, std::memory_order_release);
  return *made;
}

}  // namespace moejit::graph
