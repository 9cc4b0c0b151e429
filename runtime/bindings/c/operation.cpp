// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "moejit_device/params/multi_cast_transpose_params.h"
#include "runtime/bindings/c/call_tensors.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_operation.h"
#include "runtime/bindings/c/records.h"

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::describe_tensor;
using moejit::bindings::GivenCall;
using moejit::bindings::guarded;
using moejit::bindings::hand_out;
using moejit::bindings::null_argument;
using moejit::compiler::OperationPlan;

// The kernel of multi_cast_transpose reads the caller's list directly, so the records must agree.
using moejit::device::CastTransposeTensor;
static_assert(sizeof(moejit_cast_transpose_tensor) == sizeof(CastTransposeTensor));
static_assert(offsetof(moejit_cast_transpose_tensor, scale_inv) ==
              offsetof(CastTransposeTensor, scale_inv));
static_assert(offsetof(moejit_cast_transpose_tensor, columns) ==
              offsetof(CastTransposeTensor, columns));

Result<OperationPlan> plan_of(std::string_view json, const char* target,
                              const moejit_operation_options& options) {
  const char* const source = options.source_name == nullptr ? "operation" : options.source_name;
  MOEJIT_TRY_ASSIGN(const auto operation, moejit::compiler::parse_operation(json, source));
  MOEJIT_TRY_ASSIGN(const auto parsed_target, moejit::compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const auto tuning, moejit::bindings::read_tuning(options.tuning));
  return plan_operation(operation, parsed_target, {.tuning = tuning.get()});
}

std::unique_ptr<moejit_operation> handle_of(OperationPlan&& plan,
                                            moejit::compiler::MemoryLayout&& layout) {
  auto handle = std::make_unique<moejit_operation>();
  handle->target = to_string(plan.target);
  handle->json = to_json(plan.operation);
  handle->plan_digest = plan_digest(plan);
  handle->layout = std::move(layout);
  handle->plan = std::make_shared<const OperationPlan>(std::move(plan));
  for (const moejit::compiler::TensorPlan& tensor : handle->plan->tensors) {
    handle->tensors.push_back(moejit::bindings::caller_tensor(tensor));
    handle->tensors.back().used_by = MOEJIT_USED_BY_RUN;
  }
  return handle;
}

// Checks the arguments of a function that hands out a value, and calls `body`.
template <typename Wanted, typename Body>
moejit_error_code tell(const moejit_operation* operation, Wanted* wanted, const char* argument,
                       const char* function, Body&& body) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (operation == nullptr) return null_argument(Stage::kPlan, "operation", function);
    if (wanted == nullptr) return null_argument(Stage::kPlan, argument, function);
    return body();
  });
}

// Does the same for a function that hands out a text, which is NULL if it fails.
template <typename Body>
moejit_error_code tell_text(const moejit_operation* operation, const char** text,
                            const char* function, Body&& body) {
  if (text != nullptr) *text = nullptr;
  return tell(operation, text, "the result", function, body);
}

}  // namespace

moejit_error_code moejit_operation_create(const char* json, size_t json_bytes, const char* target,
                                          const moejit_operation_options* options,
                                          moejit_operation** operation) {
  constexpr const char* kFunction = "moejit_operation_create";
  return guarded(Stage::kParse, [&]() -> Result<void> {
    if (operation == nullptr) return null_argument(Stage::kParse, "operation", kFunction);
    *operation = nullptr;
    if (json == nullptr) return null_argument(Stage::kParse, "json", kFunction);
    if (target == nullptr) return null_argument(Stage::kParse, "target", kFunction);
    MOEJIT_TRY_ASSIGN(const auto given, moejit::bindings::read_record(Stage::kParse, options,
                                                                      "moejit_operation_options"));
    MOEJIT_TRY_ASSIGN(OperationPlan plan, plan_of({json, json_bytes}, target, given));
    MOEJIT_TRY_ASSIGN(auto layout, moejit::compiler::MemoryLayout::make(plan));
    *operation = handle_of(std::move(plan), std::move(layout)).release();
    return {};
  });
}

void moejit_operation_destroy(moejit_operation* operation) { delete operation; }

moejit_error_code moejit_operation_get_info(const moejit_operation* operation,
                                            moejit_operation_info* info) {
  return tell(operation, info, "info", "moejit_operation_get_info", [&] {
    const OperationPlan& plan = *operation->plan;
    return moejit::bindings::write_record(Stage::kPlan,
                                          {.name = operation_name(plan.operation).data(),
                                           .target = operation->target.c_str(),
                                           .tensor_count = plan.tensors.size(),
                                           .kernel_count = plan.kernels.size(),
                                           .max_tokens = plan.bounds.max_tokens,
                                           .workspace_bytes = plan.workspace_bytes,
                                           .is_prepared = operation->prepared != nullptr,
                                           .plan_digest = operation->plan_digest.c_str()},
                                          info, "moejit_operation_info");
  });
}

moejit_error_code moejit_operation_get_sizes(const moejit_operation* operation, int64_t tokens,
                                             moejit_operation_sizes* sizes) {
  return tell(operation, sizes, "sizes", "moejit_operation_get_sizes", [&]() -> Result<void> {
    MOEJIT_TRY_ASSIGN(const auto of_call, operation->layout.sizes(tokens));
    return moejit::bindings::write_record(Stage::kPlan,
                                          {.workspace_bytes = of_call.workspace_bytes}, sizes,
                                          "moejit_operation_sizes");
  });
}

moejit_error_code moejit_operation_get_json(const moejit_operation* operation, const char** json) {
  return tell_text(operation, json, "moejit_operation_get_json", [&]() -> Result<void> {
    *json = operation->json.c_str();
    return {};
  });
}

moejit_error_code moejit_operation_get_plan_json(const moejit_operation* operation,
                                                 const char** json) {
  return tell_text(operation, json, "moejit_operation_get_plan_json", [&] {
    return hand_out(operation->plan_json, json, [&] { return plan_to_json(*operation->plan); });
  });
}

moejit_error_code moejit_operation_get_plan_text(const moejit_operation* operation, int32_t explain,
                                                 const char** text) {
  return tell_text(operation, text, "moejit_operation_get_plan_text", [&] {
    return hand_out(operation->plan_text[explain != 0 ? 1 : 0], text,
                    [&] { return print_plan(*operation->plan, explain != 0); });
  });
}

moejit_error_code moejit_operation_get_tensor(const moejit_operation* operation, size_t index,
                                              moejit_tensor_info* info) {
  return tell(operation, info, "info", "moejit_operation_get_tensor",
              [&] { return describe_tensor(*operation->plan, *operation, index, info); });
}

moejit_error_code moejit_operation_get_tensor_place(const moejit_operation* operation, size_t index,
                                                    int64_t tokens, moejit_tensor_place* place) {
  return tell(operation, place, "place", "moejit_operation_get_tensor_place", [&] {
    return moejit::bindings::describe_place(*operation->plan, *operation, index, tokens, place);
  });
}

moejit_error_code moejit_operation_find_tensor(const moejit_operation* operation, const char* name,
                                               moejit_tensor_info* info) {
  constexpr const char* kFunction = "moejit_operation_find_tensor";
  return tell(operation, info, "info", kFunction, [&]() -> Result<void> {
    if (name == nullptr) return null_argument(Stage::kPlan, "name", kFunction);
    return describe_tensor(*operation->plan, *operation, std::string_view(name),
                           "moejit_operation_get_plan_text", info);
  });
}

moejit_error_code moejit_operation_prepare(moejit_operation* operation, moejit_engine* engine,
                                           moejit_device* device) {
  constexpr const char* kFunction = "moejit_operation_prepare";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (operation == nullptr) return null_argument(Stage::kLoad, "operation", kFunction);
    if (engine == nullptr) return null_argument(Stage::kLoad, "engine", kFunction);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", kFunction);
    if (operation->prepared != nullptr)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("{} is prepared already", operation->plan->subject),
                  "create an operation of its own for each device");
    MOEJIT_TRY_ASSIGN(operation->prepared, moejit::runtime::PreparedPlan::prepare(
                                               operation->plan, *engine->engine, *device->device));
    operation->device = device->device;
    operation->place = device->place;
    return {};
  });
}

moejit_error_code moejit_operation_run(moejit_operation* operation, const moejit_call* call) {
  constexpr const char* kFunction = "moejit_operation_run";
  return guarded(Stage::kLaunch, [&]() -> Result<void> {
    if (operation == nullptr) return null_argument(Stage::kLaunch, "operation", kFunction);
    if (call == nullptr) return null_argument(Stage::kLaunch, "call", kFunction);
    if (operation->prepared == nullptr)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("{} is not prepared", operation->plan->subject),
                  "call moejit_operation_prepare() once before");
    GivenCall given;
    MOEJIT_TRY(moejit::bindings::read_call(*operation->plan, *operation, *call, MOEJIT_USED_BY_RUN,
                                           kFunction, given));
    return operation->prepared->call("run", given.tensors.span(), given.memory, given.stream);
  });
}
