// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/group_plans.h"

#include "runtime/bindings/graph/failure.h"

#include <chrono>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

namespace moejit::graph {
namespace {

// The layers that the host has added, by text.
struct Added {
  std::shared_mutex mutex;
  std::map<std::string, std::unique_ptr<ReadyPlan>, std::less<>> layers;
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

const ReadyPlan* find(std::string_view text) {
  const std::shared_lock lock(added().mutex);
  const auto found = added().layers.find(text);
  return found == added().layers.end() ? nullptr : found->second.get();
}

}  // namespace

void add_group_plan(const char* text, moejit_plan* layer, moejit_device* device, Meeting* meeting,
                    int64_t patience_ms) {
  auto made = std::make_unique<ReadyPlan>();
  read_plan(layer, *made);
  made->device = device;
  made->place = place_of(device);
  made->meeting = meeting;
  made->patience_ms = patience_ms;
  const std::unique_lock lock(added().mutex);
  added().layers.insert_or_assign(text, std::move(made));
}

void remove_group_plan(const char* text) {
  const std::unique_lock lock(added().mutex);
  if (const auto found = added().layers.find(text); found != added().layers.end())
    added().layers.erase(found);
}

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

void run_simulated_ranks(const ReadyPlan& ready, bool is_of_all_ranks) {
  if (ready.meeting == nullptr) return;
  if (is_of_all_ranks) ready.meeting->wait(ready.patience_ms);
  check(moejit_device_synchronize(ready.device, nullptr));
}

const ReadyPlan& ready_group_plan(std::string_view text, std::string_view group, DLDevice device) {
  const ReadyPlan* const found = find(text);
  if (found == nullptr)
    fail(MOEJIT_ERROR_INVALID_STATE,
         "argument plan: it is of the group " + std::string(group) +
             ", which this process does not have",
         "graphs of a group belong to the process that made them, and end with its modules: "
         "compile the model again");
  const DLDevice own = found->place;
  if (own.device_type != device.device_type || own.device_id != device.device_id)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         "the tensors are on DLPack's device " + std::to_string(device.device_type) + ", id " +
             std::to_string(device.device_id) + ", and the group's rank on " +
             std::to_string(own.device_type) + ", id " + std::to_string(own.device_id),
         "give each rank the tensors and weights of its own GPU");
  return *found;
}

}  // namespace moejit::graph
