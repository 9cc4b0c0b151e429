// SPDX-License-Identifier: Apache-2.0
// Measures what a call through the C interface costs the host, for every example operation and for
// a layer's forward and backward: with the launches, without waiting for them. Prints figures and
// judges nothing.
//
//   call_bench docs/examples/operations LAYER.json
//
// where LAYER.json describes a layer with a backward pass. If it has dispatch_calls, a layer's call
// of one launch is measured too, which compares with the operation quantize.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <moejit/moejit.h>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Batches are small enough for the GPU's queue; otherwise the host would wait for a place in it.
constexpr int kLaunchesOfBatch = 400, kBatches = 60;

void check(moejit_error_code code) {
  if (code == MOEJIT_OK) return;
  fmt::print(stderr, "{}\n", moejit_last_error()->message);
  std::exit(1);
}

template <typename Record>
Record record() {
  Record made = {};
  made.struct_size = sizeof(made);
  return made;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// A call with memory for all of the caller's tensors, each at its bound and zeroed.
class Call {
 public:
  Call(moejit_device* device, DLDevice place) : device_(device), place_(place) {}

  void add(const moejit_tensor_info& info) {
    if (info.role == MOEJIT_ROLE_SAVED || info.role == MOEJIT_ROLE_WORKSPACE ||
        info.role == MOEJIT_ROLE_DEFERRED)
      return;
    DLTensor& tensor = tensors_.emplace_back();
    tensor.data = block(info.bytes);
    tensor.device = place_;
    tensor.ndim = info.ndim;
    tensor.dtype = info.dtype;
    tensor.shape = const_cast<int64_t*>(info.shape);
    named_.push_back({info.name, &tensor});
  }
  void* block(int64_t bytes) {
    void* address = nullptr;
    check(moejit_device_allocate(device_, bytes, &address));
    if (bytes > 0) check(moejit_device_fill(device_, address, 0, bytes, nullptr));
    return address;
  }
  moejit_call get() const {
    auto call = record<moejit_call>();
    call.tensors = named_.data();
    call.tensor_count = named_.size();
    return call;
  }

 private:
  moejit_device* device_;
  DLDevice place_;
  std::deque<DLTensor> tensors_;
  std::vector<moejit_tensor> named_;
};

struct Bench {
  moejit_device* device = nullptr;
  moejit_engine* engine = nullptr;
  moejit_device_info info = record<moejit_device_info>();

  void time(const std::string& name, size_t launches,
            const std::function<moejit_error_code()>& call) const {
    const int calls = std::max<int>(1, kLaunchesOfBatch / static_cast<int>(launches));
    std::vector<double> microseconds;
    for (int batch = 0; batch < kBatches; ++batch) {
      check(moejit_device_synchronize(device, nullptr));
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) check(call());
      const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
      microseconds.push_back(elapsed.count() / calls);
    }
    check(moejit_device_synchronize(device, nullptr));
    std::sort(microseconds.begin(), microseconds.end());
    const double median = microseconds[kBatches / 2];
    fmt::print("{:<30} {:>8} {:>12.2f} {:>12.2f} {:>12.2f}\n", name, launches, median,
               median / static_cast<double>(launches), microseconds[kBatches * 9 / 10]);
  }

  void time_operation(const std::filesystem::path& path) const {
    const std::string json = read(path);
    moejit_plan* operation = nullptr;
    check(moejit_plan_create(json.data(), json.size(), info.target, nullptr, &operation));
    check(moejit_plan_prepare(operation, engine, device));
    auto about = record<moejit_plan_info>();
    check(moejit_plan_get_info(operation, &about));
    Call call(device, info.dl_device);
    for (size_t i = 0; i < about.tensor_count; ++i) {
      auto tensor = record<moejit_tensor_info>();
      check(moejit_plan_get_tensor(operation, i, &tensor));
      call.add(tensor);
    }
    const moejit_call made = call.get();
    time(about.name, about.kernel_count, [&] { return moejit_operation_run(operation, &made); });
    moejit_plan_destroy(operation);
  }

  void time_layer(const std::filesystem::path& path) const {
    const std::string json = read(path);
    moejit_plan* layer = nullptr;
    check(moejit_plan_create(json.data(), json.size(), info.target, nullptr, &layer));
    check(moejit_plan_prepare(layer, engine, device));
    auto about = record<moejit_plan_info>();
    check(moejit_plan_get_info(layer, &about));
    Call call(device, info.dl_device);
    for (size_t i = 0; i < about.tensor_count; ++i) {
      auto tensor = record<moejit_tensor_info>();
      check(moejit_plan_get_tensor(layer, i, &tensor));
      call.add(tensor);
    }
    moejit_call made = call.get();
    made.workspace = call.block(about.workspace_bytes);
    made.workspace_bytes = about.workspace_bytes;
    made.saved = call.block(about.saved_bytes);
    made.saved_bytes = about.saved_bytes;
    const char* text = nullptr;
    check(moejit_plan_get_json(layer, &text));
    const std::string plan = text;
    time("forward", count_of(plan, "\"phase\": \"forward\""),
         [&] { return moejit_layer_forward(layer, &made); });
    // A call launches only one of two kernels that write and add the same gradient.
    time("backward",
         count_of(plan, "\"phase\": \"backward\"") - count_of(plan, "\"gradient_mode\": \"add\""),
         [&] { return moejit_layer_backward(layer, MOEJIT_GRADIENT_OVERWRITE, &made); });
    if (plan.find("\"dispatched\"") != std::string::npos) time_quantize(layer, about.call_count);
    moejit_plan_destroy(layer);
  }

  void time_quantize(moejit_plan* layer, size_t call_count) const {
    Call call(device, info.dl_device);
    for (size_t i = 0; i < call_count; ++i) {
      auto planned = record<moejit_call_info>();
      check(moejit_plan_get_call(layer, i, &planned));
      if (planned.name != std::string_view("quantize")) continue;
      for (size_t k = 0; k < planned.tensor_count; ++k) {
        auto tensor = record<moejit_tensor_info>();
        check(moejit_plan_get_tensor(layer, planned.tensors[k].index, &tensor));
        call.add(tensor);
      }
    }
    const moejit_call made = call.get();
    time("quantize of the layer", 1, [&] { return moejit_layer_quantize(layer, &made); });
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    fmt::print(stderr, "usage: call_bench docs/examples/operations LAYER.json\n");
    return 2;
  }
  Bench bench;
  check(moejit_device_open_cuda(0, &bench.device));
  check(moejit_engine_create(nullptr, &bench.engine));
  check(moejit_device_get_info(bench.device, &bench.info));
  fmt::print("{}: host, us of a call through C, median of {} batches\n", bench.info.name, kBatches);
  fmt::print("{:<30} {:>8} {:>12} {:>12} {:>12}\n", "call", "launches", "a call", "a launch",
             "p90 a call");
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1]))
    if (entry.path().stem() != "multi_cast_transpose") paths.insert(entry.path());
  for (const std::filesystem::path& path : paths) bench.time_operation(path);
  bench.time_layer(arguments[2]);
  return 0;
}
