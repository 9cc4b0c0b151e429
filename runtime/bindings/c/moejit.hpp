// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C interface for C++17: handles that close themselves, and exceptions. The header needs no
// library of its own: everything it calls is in <moejit/moejit.h>, which says what each function
// does.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <moejit/moejit.h>
#include <moejit/moejit_describe.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit {
// Programs built with other versions of this header do not share its inline functions.
inline namespace bindings_v0 {

// The exception of every failed call: the last error of the thread, copied. what() has all that a
// person needs, "code: message (hint)".
class Error : public std::exception {
 public:
  explicit Error(const moejit_error& error)
      : code_(error.code),
        stage_(error.stage),
        message_(error.message),
        hint_(error.hint),
        detail_(error.detail),
        what_(std::string(code_name()) + ": " + message_ +
              (hint_.empty() ? "" : " (" + hint_ + ")")) {}

  moejit_error_code code() const noexcept { return code_; }
  const char* code_name() const noexcept { return moejit_error_code_name(code_); }
  const std::string& stage() const noexcept { return stage_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& hint() const noexcept { return hint_; }
  const std::string& detail() const noexcept { return detail_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  moejit_error_code code_;
  std::string stage_, message_, hint_, detail_, what_;
};

inline void check(moejit_error_code code) {
  if (code != MOEJIT_OK) throw Error(*moejit_last_error());
}

// Returns a record of the C interface with struct_size set and the defaults everywhere else:
//   auto call = moejit::make<moejit_call>();
template <typename Record>
Record make() {
  Record record{};
  record.struct_size = sizeof(Record);
  return record;
}

namespace detail {

struct Destroy {
  void operator()(moejit_device* device) const { moejit_device_destroy(device); }
  void operator()(moejit_engine* engine) const { moejit_engine_destroy(engine); }
  void operator()(moejit_plan* plan) const { moejit_plan_destroy(plan); }
  void operator()(moejit_description* description) const {
    moejit_description_destroy(description);
  }
};
template <typename Handle>
using Owner = std::unique_ptr<Handle, Destroy>;

// Returns the handle that `create` makes.
template <typename Handle, typename Create>
Owner<Handle> own(Create&& create) {
  Handle* handle = nullptr;
  check(create(&handle));
  return Owner<Handle>(handle);
}

}  // namespace detail

// The classes below are empty after they were moved from; then every call throws.

class Device {
 public:
  static Device open_cuda(std::int32_t ordinal = MOEJIT_CURRENT_GPU) {
    return Device([&](moejit_device** device) { return moejit_device_open_cuda(ordinal, device); });
  }
  static Device open_simulator(
      const moejit_simulator_options& options = make<moejit_simulator_options>()) {
    return Device(
        [&](moejit_device** device) { return moejit_device_open_simulator(&options, device); });
  }

  moejit_device* get() const noexcept { return handle_.get(); }
  moejit_device_info info() const {
    auto info = make<moejit_device_info>();
    check(moejit_device_get_info(get(), &info));
    return info;
  }

  void* allocate(std::int64_t bytes) {
    void* address = nullptr;
    check(moejit_device_allocate(get(), bytes, &address));
    return address;
  }
  void release(void* address) { check(moejit_device_release(get(), address)); }
  void copy_to_device(void* destination, const void* source, std::int64_t bytes) {
    check(moejit_device_copy_to_device(get(), destination, source, bytes));
  }
  void copy_to_host(void* destination, const void* source, std::int64_t bytes) {
    check(moejit_device_copy_to_host(get(), destination, source, bytes));
  }
  void fill(void* destination, std::uint8_t value, std::int64_t bytes, void* stream = nullptr) {
    check(moejit_device_fill(get(), destination, value, bytes, stream));
  }
  void synchronize(void* stream = nullptr) { check(moejit_device_synchronize(get(), stream)); }

 private:
  template <typename Create>
  explicit Device(Create&& create) : handle_(detail::own<moejit_device>(create)) {}
  detail::Owner<moejit_device> handle_;
};

struct EngineOptions {
  std::string cache_dir;  // empty: the default folder
  bool memory_only = false;
  bool frozen = false;
  std::optional<std::string> packs;  // separated by ':'; none: as MOEJIT_PACKS says
  std::string pack_keys;             // empty: as MOEJIT_PACK_KEYS says
  // A field below that is not set is as its environment variable says. If that is not set either,
  // docs/environment.md has the default.
  std::int64_t cache_max_bytes = 0;  // 0: not set; INT64_MAX: any
  std::int64_t cache_max_files = 0;
  moejit_cache_network cache_network = MOEJIT_CACHE_NETWORK_DEFAULT;
  std::string run_dir;
  std::optional<std::chrono::milliseconds> lock_patience;
  std::int32_t compile_jobs = 0;
  std::string compile_worker;
  std::string reproducer_dir;
  // Called from any thread that prepares a layer. Exceptions from it are dropped.
  std::function<void(std::string_view)> warn;
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {})
      : warn_(std::make_unique<std::function<void(std::string_view)>>(std::move(options.warn))),
        handle_(detail::own<moejit_engine>([&](moejit_engine** engine) {
          auto given = make<moejit_engine_options>();
          given.cache_dir = options.cache_dir.c_str();
          given.memory_only = options.memory_only;
          given.frozen = options.frozen;
          given.packs = options.packs ? options.packs->c_str() : nullptr;
          given.pack_keys = options.pack_keys.c_str();
          given.cache_max_bytes = options.cache_max_bytes;
          given.cache_max_files = options.cache_max_files;
          given.cache_network = options.cache_network;
          given.run_dir = options.run_dir.c_str();
          if (options.lock_patience)  // to C, 0 is not set
            given.lock_patience_ms =
                options.lock_patience->count() > 0 ? options.lock_patience->count() : -1;
          given.compile_jobs = options.compile_jobs;
          given.compile_worker = options.compile_worker.c_str();
          given.reproducer_dir = options.reproducer_dir.c_str();
          given.warn = *warn_ ? &Engine::warn : nullptr;
          given.warn_context = warn_.get();
          return moejit_engine_create(&given, engine);
        })) {}

  moejit_engine* get() const noexcept { return handle_.get(); }
  moejit_engine_info info() const {
    auto info = make<moejit_engine_info>();
    check(moejit_engine_get_info(get(), &info));
    return info;
  }

 private:
  static void warn(void* function, const char* text) noexcept {
    try {
      (*static_cast<std::function<void(std::string_view)>*>(function))(text);
    } catch (...) {  // there is nobody to tell
    }
  }

  // The order matters: the engine is destroyed first. The function is on the heap because the
  // engine keeps its address.
  std::unique_ptr<std::function<void(std::string_view)>> warn_;
  detail::Owner<moejit_engine> handle_;
};

// A plan of any kind. Layer and Operation name its calls.
class Plan {
 public:
  // Parses a description and plans it for a target, such as Device::info().target.
  Plan(std::string_view json, const std::string& target,
       const moejit_plan_options& options = make<moejit_plan_options>())
      : handle_(detail::own<moejit_plan>([&](moejit_plan** plan) {
          return moejit_plan_create(json.data(), json.size(), target.c_str(), &options, plan);
        })) {}

  moejit_plan* get() const noexcept { return handle_.get(); }
  moejit_plan_info info() const {
    auto info = make<moejit_plan_info>();
    check(moejit_plan_get_info(get(), &info));
    return info;
  }
  // Returns the least bytes of the blocks of a call over so many tokens.
  moejit_plan_sizes sizes(std::int64_t tokens) const {
    auto sizes = make<moejit_plan_sizes>();
    check(moejit_plan_get_sizes(get(), tokens, &sizes));
    return sizes;
  }
  // Return the description, the plan for tools, and the plan for people.
  std::string json() const {
    return text([&](const char** text) { return moejit_plan_get_description(get(), text); });
  }
  std::string plan_json() const {
    return text([&](const char** text) { return moejit_plan_get_json(get(), text); });
  }
  std::string plan_text(bool explain = false) const {
    return text([&](const char** text) { return moejit_plan_get_text(get(), explain, text); });
  }

  // Return all tensors, and all calls, of the plan. Their pointers are valid as long as the plan.
  std::vector<moejit_tensor_info> tensors() const {
    std::vector<moejit_tensor_info> infos(info().tensor_count, make<moejit_tensor_info>());
    for (std::size_t i = 0; i < infos.size(); ++i)
      check(moejit_plan_get_tensor(get(), i, &infos[i]));
    return infos;
  }
  std::vector<moejit_call_info> calls() const {
    std::vector<moejit_call_info> infos(info().call_count, make<moejit_call_info>());
    for (std::size_t i = 0; i < infos.size(); ++i) check(moejit_plan_get_call(get(), i, &infos[i]));
    return infos;
  }
  moejit_tensor_info tensor(const std::string& name) const {
    auto info = make<moejit_tensor_info>();
    check(moejit_plan_find_tensor(get(), name.c_str(), &info));
    return info;
  }
  // Returns where tensors()[index] is in a call over so many tokens.
  moejit_tensor_place tensor_place(std::size_t index, std::int64_t tokens) const {
    auto place = make<moejit_tensor_place>();
    check(moejit_plan_get_tensor_place(get(), index, tokens, &place));
    return place;
  }

  void prepare(Engine& engine, Device& device) {
    check(moejit_plan_prepare(get(), engine.get(), device.get()));
  }
  // Makes a call by its name in calls().
  void call(const std::string& name, const moejit_call& call) {
    check(moejit_plan_call(get(), name.c_str(), &call));
  }

 private:
  template <typename Get>
  static std::string text(Get&& get) {
    const char* text = nullptr;
    check(get(&text));
    return text;
  }
  detail::Owner<moejit_plan> handle_;
};

class Layer : public Plan {
 public:
  using Plan::Plan;
  void update_weights(const moejit_call& call) { check(moejit_layer_update_weights(get(), &call)); }
  // Computes the scales of a pass for the next step, if the recipe has an amax history.
  void update_scales(moejit_pass pass, const moejit_call& call) {
    check(moejit_layer_update_scales(get(), pass, &call));
  }
  void forward(const moejit_call& call) { check(moejit_layer_forward(get(), &call)); }
  void backward(moejit_gradient_mode mode, const moejit_call& call) {
    check(moejit_layer_backward(get(), mode, &call));
  }
  // Run the two halves of backward(), the data half first.
  void backward_data(const moejit_call& call) { check(moejit_layer_backward_data(get(), &call)); }
  void backward_weights(moejit_gradient_mode mode, const moejit_call& call) {
    check(moejit_layer_backward_weights(get(), mode, &call));
  }
  // Run the parts of forward() and of backward() between which the host dispatches rows.
  void quantize(const moejit_call& call) { check(moejit_layer_quantize(get(), &call)); }
  void experts(const moejit_call& call) { check(moejit_layer_experts(get(), &call)); }
  void quantize_grad(const moejit_call& call) { check(moejit_layer_quantize_grad(get(), &call)); }
  void experts_grad(moejit_gradient_mode mode, const moejit_call& call) {
    check(moejit_layer_experts_grad(get(), mode, &call));
  }
};

class Operation : public Plan {
 public:
  using Plan::Plan;
  void run(const moejit_call& call) { check(moejit_operation_run(get(), &call)); }
};

// What moejit_describe_hugging_face() made.
struct Description {
  std::string json;  // the layer description
  std::string model_type;
  std::vector<std::string> used_keys, notes;
};

// Makes the layer description that a model's config.json implies.
inline Description describe_hugging_face(
    std::string_view config_json,
    const moejit_hugging_face_options& options = make<moejit_hugging_face_options>()) {
  const auto handle = detail::own<moejit_description>([&](moejit_description** description) {
    return moejit_describe_hugging_face(config_json.data(), config_json.size(), &options,
                                        description);
  });
  auto info = make<moejit_description_info>();
  check(moejit_description_get_info(handle.get(), &info));
  return {info.json,
          info.model_type,
          {info.used_keys, info.used_keys + info.used_key_count},
          {info.notes, info.notes + info.note_count}};
}

// Throws for a status word that is not 0.
inline void check_status(std::uint32_t status) { check(moejit_status_check(status)); }

}  // namespace bindings_v0
}  // namespace moejit
