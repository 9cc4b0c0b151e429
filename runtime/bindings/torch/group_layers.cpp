// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/group_layers.h"

#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/plan_text.h"

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

namespace moejit::torch {
namespace {

// The layers that the host has added, by text.
struct Added {
  std::shared_mutex mutex;
  std::map<std::string, std::unique_ptr<ReadyGroupLayer>, std::less<>> layers;
};

Added& added() {
  static auto* const added = new Added;
  return *added;
}

DLDevice place_of(const moejit_device* device) {
  moejit_device_info info{};
  info.struct_size = sizeof info;
  check(moejit_device_get_info(device, &info));
  return info.dl_device;
}

std::unique_ptr<ReadyGroupLayer> read(moejit_plan* layer, moejit_device* device, Meeting* meeting) {
  auto made = std::make_unique<ReadyGroupLayer>();
  made->layer = layer;
  made->meeting = meeting;
  made->ready.device = device;
  made->place = place_of(device);
  moejit_plan_info plan{};
  plan.struct_size = sizeof plan;
  check(moejit_plan_get_info(layer, &plan));
  made->ready.info.max_tokens = plan.max_tokens;
  made->ready.info.workspace_bytes = plan.workspace_bytes;
  made->ready.info.saved_bytes = plan.saved_bytes;
  for (std::size_t i = 0; i < plan.tensor_count; ++i) {
    moejit_tensor_info info{};
    info.struct_size = sizeof info;
    check(moejit_plan_get_tensor(layer, i, &info));
    keep(made->ready, info, i);
  }
  return made;
}

const ReadyGroupLayer* find(std::string_view text) {
  const std::shared_lock lock(added().mutex);
  const auto found = added().layers.find(text);
  return found == added().layers.end() ? nullptr : found->second.get();
}

}  // namespace

void Meeting::wait(int64_t patience_ms) {
  std::unique_lock lock(mutex_);
  const int64_t meeting = meetings_;
  if (++come_ == ranks_) {
    come_ = 0;
    ++meetings_;
    all_have_come_.notify_all();
    return;
  }
  const auto goes_on = [&] { return meetings_ != meeting || is_aborted_; };
  all_have_come_.wait_for(lock, std::chrono::milliseconds(patience_ms), goes_on);
  if (meetings_ == meeting) --come_;
}

void Meeting::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  all_have_come_.notify_all();
}

void ReadyGroupLayer::run_call_in_simulator() const {
  if (meeting != nullptr) meeting->wait(patience_ms);
  run_simulator();
}

void ReadyGroupLayer::run_simulator() const {
  if (meeting != nullptr) check(moejit_device_synchronize(ready.device, nullptr));
}

const ReadyGroupLayer& ready_group_layer(std::string_view text, DLDevice device) {
  const ReadyGroupLayer* const found = find(text);
  if (found == nullptr) {
    const std::string group(read_plan_text(text, "layer").group);
    if (group.empty())
      fail(MOEJIT_ERROR_INVALID_VALUE,
           "argument layer: it is of one rank, wanted a layer of a group",
           "call the operators without group_");
    fail(
        MOEJIT_ERROR_INVALID_STATE,
        "argument layer: it is of the group " + group + ", which this process does not have",
        "graphs of a group belong to the process that made them, and end with its modules: compile "
        "the model again");
  }
  const DLDevice own = found->place;
  if (own.device_type != device.device_type || own.device_id != device.device_id)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         "the tensors are on DLPack's device " + std::to_string(device.device_type) + ", id " +
             std::to_string(device.device_id) + ", and the group's rank on " +
             std::to_string(own.device_type) + ", id " + std::to_string(own.device_id),
         "give each rank the tensors and weights of its own GPU");
  return *found;
}

}  // namespace moejit::torch

extern "C" {

// Returns a new meeting of simulated ranks.
__attribute__((visibility("default"))) void* moejit_torch_open_meeting(int32_t ranks) {
  return new moejit::torch::Meeting(ranks);
}

// Lets threads that wait in a meeting go on, and later ones too.
__attribute__((visibility("default"))) void moejit_torch_abort_meeting(void* meeting) {
  static_cast<moejit::torch::Meeting*>(meeting)->abort();
}

// Ends a meeting whose layers have all been removed.
__attribute__((visibility("default"))) void moejit_torch_close_meeting(void* meeting) {
  delete static_cast<moejit::torch::Meeting*>(meeting);
}

// Makes operators find a prepared layer of a group by its text, until it is removed. Calls wait in
// `meeting` for other ranks, at most patience_ms; it is NULL with GPUs. Returns 0, or 1 if there is
// no memory.
__attribute__((visibility("default"))) int32_t moejit_torch_add_group_layer(const char* text,
                                                                            moejit_plan* layer,
                                                                            moejit_device* device,
                                                                            void* meeting,
                                                                            int64_t patience_ms) {
  using moejit::torch::added;
  try {
    auto made = moejit::torch::read(layer, device, static_cast<moejit::torch::Meeting*>(meeting));
    made->patience_ms = patience_ms;
    const std::unique_lock lock(added().mutex);
    added().layers.insert_or_assign(text, std::move(made));
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// Makes operators forget a layer, before the host destroys it. No call of it may be under way.
__attribute__((visibility("default"))) void moejit_torch_remove_group_layer(const char* text) {
  using moejit::torch::added;
  const std::unique_lock lock(added().mutex);
  if (const auto found = added().layers.find(text); found != added().layers.end())
    added().layers.erase(found);
}

}  // extern "C"
