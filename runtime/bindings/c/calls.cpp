// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/call_tensors.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_dispatch.h"
#include "runtime/bindings/c/moejit_state.h"
#include "runtime/bindings/c/records.h"

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::GivenCall;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::bindings::read_call;
using moejit::bindings::read_mode;
using moejit::bindings::read_pass;
using moejit::compiler::GradientMode;
using moejit::compiler::Pass;
using moejit::runtime::CallMemory;
using moejit::runtime::PreparedLayer;
using moejit::runtime::Stream;
using moejit::runtime::TensorRef;

// Checks the caller's record and tensors, and calls `body` with them in the runtime's form.
template <typename Body>
moejit_error_code with_call(moejit_layer* layer, const moejit_call* call, uint32_t call_bit,
                            const char* function, Body&& body) {
  return guarded(Stage::kLaunch, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kLaunch, "layer", function);
    if (call == nullptr) return null_argument(Stage::kLaunch, "call", function);
    if (layer->prepared == nullptr)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("{} is not prepared", layer->plan.subject),
                  "call moejit_layer_prepare() once before");
    GivenCall given;
    MOEJIT_TRY(read_call(layer->plan, *layer, *call, call_bit, function, given));
    return body(*layer->prepared, given.tensors.span(), given.memory, given.stream);
  });
}

// Checks the caller's record and tensors, and calls the layer's kPass with them.
template <auto kPass>
moejit_error_code run_pass(moejit_layer* layer, const moejit_call* call, uint32_t call_bit,
                           const char* function) {
  return with_call(
      layer, call, call_bit, function,
      [](PreparedLayer& prepared, auto tensors, const CallMemory& memory, Stream stream) {
        return (prepared.*kPass)(tensors, memory, stream, nullptr);
      });
}

// Does the same for a kPass with a gradient mode, which is checked too.
template <auto kPass>
moejit_error_code run_pass(moejit_layer* layer, moejit_gradient_mode mode, const moejit_call* call,
                           uint32_t call_bit, const char* function) {
  return with_call(layer, call, call_bit, function,
                   [&](PreparedLayer& prepared, auto tensors, const CallMemory& memory,
                       Stream stream) -> Result<void> {
                     MOEJIT_TRY_ASSIGN(const GradientMode given, read_mode(mode, function));
                     return (prepared.*kPass)(tensors, given, memory, stream, nullptr);
                   });
}

}  // namespace

moejit_error_code moejit_layer_prepare(moejit_layer* layer, moejit_engine* engine,
                                       moejit_device* device) {
  constexpr const char* kFunction = "moejit_layer_prepare";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kLoad, "layer", kFunction);
    if (engine == nullptr) return null_argument(Stage::kLoad, "engine", kFunction);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", kFunction);
    if (layer->prepared != nullptr)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("{} is prepared already", layer->plan.subject),
                  "create a layer of its own for each device");
    MOEJIT_TRY_ASSIGN(layer->prepared,
                      PreparedLayer::prepare(layer->plan, *engine->engine, *device->device));
    layer->device = device->device;
    layer->place = device->place;
    return {};
  });
}

moejit_error_code moejit_layer_update_weights(moejit_layer* layer, const moejit_call* call) {
  return with_call(
      layer, call, MOEJIT_USED_BY_UPDATE_WEIGHTS, "moejit_layer_update_weights",
      [](PreparedLayer& prepared, std::span<const TensorRef> tensors, const CallMemory& /*memory*/,
         Stream stream) { return prepared.update_weights(tensors, stream); });
}

moejit_error_code moejit_layer_update_scales(moejit_layer* layer, moejit_pass pass,
                                             const moejit_call* call) {
  constexpr const char* kFunction = "moejit_layer_update_scales";
  return with_call(layer, call, MOEJIT_USED_BY_UPDATE_SCALES, kFunction,
                   [&](PreparedLayer& prepared, std::span<const TensorRef> tensors,
                       const CallMemory& /*memory*/, Stream stream) -> Result<void> {
                     MOEJIT_TRY_ASSIGN(const Pass given, read_pass(pass, kFunction));
                     return prepared.update_scales(given, tensors, stream);
                   });
}

moejit_error_code moejit_layer_forward(moejit_layer* layer, const moejit_call* call) {
  return run_pass<&PreparedLayer::forward>(layer, call, MOEJIT_USED_BY_FORWARD,
                                           "moejit_layer_forward");
}

moejit_error_code moejit_layer_backward(moejit_layer* layer, moejit_gradient_mode mode,
                                        const moejit_call* call) {
  return run_pass<&PreparedLayer::backward>(layer, mode, call, MOEJIT_USED_BY_BACKWARD,
                                            "moejit_layer_backward");
}

moejit_error_code moejit_layer_backward_data(moejit_layer* layer, const moejit_call* call) {
  return run_pass<&PreparedLayer::backward_data>(layer, call, MOEJIT_USED_BY_BACKWARD_DATA,
                                                 "moejit_layer_backward_data");
}

moejit_error_code moejit_layer_backward_weights(moejit_layer* layer, moejit_gradient_mode mode,
                                                const moejit_call* call) {
  return run_pass<&PreparedLayer::backward_weights>(
      layer, mode, call, MOEJIT_USED_BY_BACKWARD_WEIGHTS, "moejit_layer_backward_weights");
}

moejit_error_code moejit_layer_quantize(moejit_layer* layer, const moejit_call* call) {
  return run_pass<&PreparedLayer::quantize>(layer, call, MOEJIT_USED_BY_QUANTIZE,
                                            "moejit_layer_quantize");
}

moejit_error_code moejit_layer_experts(moejit_layer* layer, const moejit_call* call) {
  return run_pass<&PreparedLayer::experts>(layer, call, MOEJIT_USED_BY_EXPERTS,
                                           "moejit_layer_experts");
}

moejit_error_code moejit_layer_quantize_grad(moejit_layer* layer, const moejit_call* call) {
  return run_pass<&PreparedLayer::quantize_grad>(layer, call, MOEJIT_USED_BY_QUANTIZE_GRAD,
                                                 "moejit_layer_quantize_grad");
}

moejit_error_code moejit_layer_experts_grad(moejit_layer* layer, moejit_gradient_mode mode,
                                            const moejit_call* call) {
  return run_pass<&PreparedLayer::experts_grad>(layer, mode, call, MOEJIT_USED_BY_EXPERTS_GRAD,
                                                "moejit_layer_experts_grad");
}
