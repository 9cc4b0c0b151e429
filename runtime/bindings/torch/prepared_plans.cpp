// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/prepared_plans.h"

#include "runtime/bindings/torch/failure.h"

#include <cstdio>

namespace moejit::torch {
namespace {

// The state that outlives single calls.
struct Shared {
  std::mutex mutex;
  std::map<int32_t, moejit_device*> devices;  // by device key
  moejit_engine* engine = nullptr;
};

void warn(void* /*context*/, const char* text) { std::fprintf(stderr, "moejit: %s\n", text); }

}  // namespace

Place shared_place(int32_t device_key) {
  static auto* const shared = new Shared;
  const std::scoped_lock lock(shared->mutex);
  if (shared->engine == nullptr) {
    moejit_engine_options options{};
    options.struct_size = sizeof options;
    options.warn = warn;
    check(moejit_engine_create(&options, &shared->engine));
  }
  moejit_device*& device = shared->devices[device_key];
  if (device == nullptr)
    check(device_key < 0 ? moejit_device_open_simulator(nullptr, &device)
                         : moejit_device_open_cuda(device_key, &device));
  return {shared->engine, device};
}

std::string check_text(const PlanText& text, std::string_view argument,
                       const moejit_device* device) {
  moejit_device_info info{};
  info.struct_size = sizeof info;
  check(moejit_device_get_info(device, &info));
  if (text.target != info.target)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         "argument " + std::string(argument) + ": it is planned for " + std::string(text.target) +
             ", the tensors are on a device of " + info.target,
         "make the text with the device of the tensors");
  // Checks the version before the JSON is read: another version may have other fields.
  check_is_current(text, moejit_version(), text.digest);
  return info.target;
}

std::string hint_of_preparing(int32_t code, std::string_view json, int64_t max_tokens) {
  if (code == MOEJIT_ERROR_STREAM_CAPTURE)
    return "call it once with tensors of these dtypes before the capture: the first call loads the "
           "kernels";
  if (code != MOEJIT_ERROR_CACHE_MISS) return "";
  std::string hint = "LAYER is a file with the last line of this message";
  if (max_tokens > 0)
    hint += "; moejit.torch.build(model, tokens=" + std::to_string(max_tokens) +
            ", target=..., pack=\"kernels.moejitpack\") makes all kernels of a model";
  return hint + "\n" + std::string(json);
}

}  // namespace moejit::torch
