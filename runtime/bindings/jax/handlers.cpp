// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/failure.h"
#include "runtime/bindings/graph/plan_text.h"
#include "runtime/bindings/jax/call.h"
#include "xla/ffi/api/ffi.h"

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

// The handlers of the target "moejit_call": a call of a plan. Its attributes are `plan`, the text
// of graph::PlanText; `call`, a name in the plan; and `names` of arguments and results, in their
// order. "=NAME" is an argument whose memory the result NAME has.

namespace moejit::jax {
namespace {

namespace ffi = xla::ffi;
using ffi::ErrorCode;

ErrorCode code_of(moejit_error_code code) {
  switch (code) {
    case MOEJIT_ERROR_OUT_OF_MEMORY: return ErrorCode::kResourceExhausted;
    case MOEJIT_ERROR_UNSUPPORTED: return ErrorCode::kUnimplemented;
    case MOEJIT_ERROR_DRIVER:
    case MOEJIT_ERROR_INTERNAL:
    case MOEJIT_ERROR_SIMULATOR_FAULT: return ErrorCode::kInternal;
    default: return ErrorCode::kInvalidArgument;
  }
}

template <typename Body>
ffi::Error guarded(Body&& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const graph::Failure& failure) {
    return {code_of(failure.code), failure.what()};
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("moejit: internal: ") + error.what());
  }
}

template <typename Buffer>
Buffer checked(ffi::ErrorOr<Buffer> buffer) {
  if (buffer.has_error()) graph::fail(MOEJIT_ERROR_INTERNAL, buffer.error().message());
  return *buffer;
}

void run(std::string_view plan, std::string_view name, std::string_view names, DLDevice place,
         void* stream, const ffi::RemainingArgs& arguments, const ffi::RemainingRets& results) {
  const graph::ReadyPlan& ready = graph::ready_plan(plan, place);
  Call call(ready, ready.find_call(std::string(name).c_str()), stream);
  std::vector<std::string_view> given;  // results whose memory is an argument's
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = take_word(names);
    if (word.starts_with('='))
      given.push_back(word.substr(1));
    else
      call.add(word, checked(arguments.get<ffi::AnyBuffer>(i)));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string_view word = take_word(names);
    call.add_result(word, *checked(results.get<ffi::AnyBuffer>(i)),
                    std::ranges::find(given, word) != given.end());
  }
  call.run();
}

// Refuses a program of another version when it is compiled, or loaded from a cache.
ffi::Error instantiate(std::string_view plan, std::string_view /*call*/,
                       std::string_view /*names*/) {
  return guarded([&] {
    const graph::PlanText text = graph::read_plan_text(plan);
    graph::check_is_current(text, moejit_version(), text.digest);
  });
}

// Loads the kernels before XLA records a command buffer.
ffi::Error initialize(std::string_view plan, std::string_view /*call*/, std::string_view /*names*/,
                      int32_t ordinal) {
  return guarded([&] { graph::ready_plan(plan, {kDLCUDA, ordinal}); });
}

ffi::Error execute_on_gpu(std::string_view plan, std::string_view call, std::string_view names,
                          int32_t ordinal, void* stream, ffi::RemainingArgs arguments,
                          ffi::RemainingRets results) {
  return guarded([&] { run(plan, call, names, {kDLCUDA, ordinal}, stream, arguments, results); });
}

ffi::Error execute_on_cpu(std::string_view plan, std::string_view call, std::string_view names,
                          ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  return guarded([&] { run(plan, call, names, {kDLCPU, 0}, nullptr, arguments, results); });
}

// Each stage has to name all attributes: XLA compares their number.
template <ffi::ExecutionStage stage = ffi::ExecutionStage::kExecute>
auto bind() {
  return ffi::Ffi::Bind<stage>()
      .template Attr<std::string_view>("plan")
      .template Attr<std::string_view>("call")
      .template Attr<std::string_view>("names");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(moejit_jax_instantiate, instantiate,
                              bind<ffi::ExecutionStage::kInstantiate>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(moejit_jax_initialize, initialize,
                              bind<ffi::ExecutionStage::kInitialize>().Ctx<ffi::DeviceOrdinal>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(moejit_jax_execute_on_gpu, execute_on_gpu,
                              bind()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .RemainingArgs()
                                  .RemainingRets(),
                              {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(moejit_jax_execute_on_cpu, execute_on_cpu,
                              bind().RemainingArgs().RemainingRets());

}  // namespace moejit::jax
