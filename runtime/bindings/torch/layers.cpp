// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/layers.h"

#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/layer_text.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace moejit::torch {
namespace {

constexpr int64_t kSliceAlignment = 256;

// A place in the map; the layer in it may still have to be prepared.
struct Entry {
  std::mutex preparing;
  std::atomic<bool> is_ready = false;
  ReadyLayer layer;
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
using Entries = std::unordered_map<std::string, std::unique_ptr<Entry>, TextHash, std::equal_to<>>;

// Everything that outlives single calls. Never destroyed: at the end of the process threads and
// graphs of torch may still use it.
struct Registry {
  std::shared_mutex mutex;
  std::map<int32_t, Entries> entries;         // by device key
  std::map<int32_t, moejit_device*> devices;  // by device key
  moejit_engine* engine = nullptr;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

int32_t device_key(DLDevice device) {
  return device.device_type == kDLCUDA ? device.device_id : -1;
}

void warn(void* /*context*/, const char* text) { std::fprintf(stderr, "moejit: %s\n", text); }

// These two need the registry's lock held.
moejit_engine* shared_engine(Registry& all) {
  if (all.engine == nullptr) {
    moejit_engine_options options{};
    options.struct_size = sizeof options;
    options.warn = warn;
    check(moejit_engine_create(&options, &all.engine));
  }
  return all.engine;
}

moejit_device* shared_device(Registry& all, int32_t key) {
  moejit_device*& device = all.devices[key];
  if (device == nullptr)
    check(key < 0 ? moejit_device_open_simulator(nullptr, &device)
                  : moejit_device_open_cuda(key, &device));
  return device;
}

std::string target_of(const moejit_device* device) {
  moejit_device_info info{};
  info.struct_size = sizeof info;
  check(moejit_device_get_info(device, &info));
  return info.target;
}

PlannedTensor planned(const moejit_tensor_info& info) {
  PlannedTensor tensor{info.name, info.dtype, {info.shape, info.shape + info.ndim}, {}};
  for (int32_t i = 0; i < std::min<int32_t>(info.ndim, 4); ++i)
    tensor.is_token_dim[static_cast<std::size_t>(i)] = std::string_view(info.symbols[i]) == "T";
  return tensor;
}

// Reads what operators need of the plan.
void read_plan(ReadyLayer& ready) {
  ready.info.struct_size = sizeof ready.info;
  check(moejit_layer_get_info(ready.layer, &ready.info));
  for (std::size_t i = 0; i < ready.info.tensor_count; ++i) {
    moejit_tensor_info info{};
    info.struct_size = sizeof info;
    check(moejit_layer_get_tensor(ready.layer, i, &info));
    if (info.role == MOEJIT_ROLE_OUTPUT) ready.outputs.push_back(planned(info));
    if (info.role != MOEJIT_ROLE_QUANTIZED) continue;
    QuantizedBlock& block =
        (info.used_by & MOEJIT_USED_BY_FORWARD) != 0 ? ready.quantized : ready.quantized_colwise;
    block.slices.push_back({planned(info), block.bytes, info.used_by});
    block.bytes += (info.bytes + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  }
}

struct LayerDeleter {
  void operator()(moejit_layer* layer) const { moejit_layer_destroy(layer); }
};

ReadyLayer prepare(std::string_view text, moejit_engine* engine, moejit_device* device) {
  const LayerText read = read_layer_text(text);
  const std::string target = target_of(device);
  if (read.target != target)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         "argument layer: it is planned for " + std::string(read.target) +
             ", the tensors are on a device of " + target,
         "make the text with the device of the tensors");
  ReadyLayer ready;
  ready.device = device;
  // Checked before the JSON is read: another version may have other fields.
  check_is_current(read, moejit_version(), read.digest);
  moejit_layer* created = nullptr;
  check(moejit_layer_create(read.json.data(), read.json.size(), target.c_str(), nullptr, &created));
  std::unique_ptr<moejit_layer, LayerDeleter> owner(created);
  ready.layer = created;
  read_plan(ready);
  check_is_current(read, moejit_version(), ready.info.plan_digest);
  const moejit_error_code code = moejit_layer_prepare(created, engine, device);
  check(code,
        code == MOEJIT_ERROR_STREAM_CAPTURE
            ? "call the layer once with tensors of these dtypes before the capture: its first "
              "call loads the kernels"
            : "");
  owner.release();
  return ready;
}

// Returns the place of a layer, and makes it if there is none.
Entry& entry_of(Registry& all, int32_t key, std::string_view text) {
  {
    const std::shared_lock lock(all.mutex);
    if (const auto found = all.entries.find(key); found != all.entries.end())
      if (const auto entry = found->second.find(text); entry != found->second.end())
        return *entry->second;
  }
  const std::unique_lock lock(all.mutex);
  std::unique_ptr<Entry>& entry = all.entries[key][std::string(text)];
  if (entry == nullptr) entry = std::make_unique<Entry>();
  return *entry;
}

}  // namespace

const PlannedTensor* ReadyLayer::find_output(std::string_view name) const {
  const auto found = std::ranges::find(outputs, name, &PlannedTensor::name);
  return found == outputs.end() ? nullptr : &*found;
}

moejit_layer_sizes ReadyLayer::sizes(int64_t tokens) const {
  moejit_layer_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  check(moejit_layer_get_sizes(layer, tokens, &sizes));
  return sizes;
}

const ReadyLayer& ready_layer(std::string_view text, DLDevice device) {
  Registry& all = registry();
  const int32_t key = device_key(device);
  Entry& entry = entry_of(all, key, text);
  if (entry.is_ready.load(std::memory_order_acquire)) return entry.layer;
  const std::scoped_lock preparing(entry.preparing);
  if (entry.is_ready.load(std::memory_order_relaxed)) return entry.layer;
  moejit_engine* engine = nullptr;
  moejit_device* opened = nullptr;
  {
    const std::unique_lock lock(all.mutex);
    engine = shared_engine(all);
    opened = shared_device(all, key);
  }
  entry.layer = prepare(text, engine, opened);
  entry.is_ready.store(true, std::memory_order_release);
  return entry.layer;
}

}  // namespace moejit::torch
