// SPDX-License-Identifier: Apache-2.0
#include "moejit_device/params/multi_cast_transpose_params.h"
#include "runtime/bindings/c/call_tensors.h"
#include "runtime/bindings/c/group_handles.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_group.h"

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::runtime::PreparedPlan;

// The kernel of multi_cast_transpose reads the caller's list directly, so the records must agree.
using moejit::device::CastTransposeTensor;
static_assert(sizeof(moejit_cast_transpose_tensor) == sizeof(CastTransposeTensor));
static_assert(offsetof(moejit_cast_transpose_tensor, scale_inv) ==
              offsetof(CastTransposeTensor, scale_inv));
static_assert(offsetof(moejit_cast_transpose_tensor, columns) ==
              offsetof(CastTransposeTensor, columns));

// Prepares a plan by calling `prepare`, once in the plan's life, for a device at a place. `where`
// names in the error what a plan is prepared for.
template <typename Prepare>
Result<void> prepare_once(moejit_plan& plan, const std::shared_ptr<moejit::runtime::Device>& device,
                          DLDevice place, const char* where, Prepare&& prepare) {
  if (plan.prepared != nullptr)
    return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                fmt::format("{} is prepared already", plan.plan->subject),
                fmt::format("create a plan of its own for each {}", where));
  MOEJIT_TRY_ASSIGN(plan.prepared, prepare());
  plan.device = device;
  plan.place = place;
  return {};
}

}  // namespace

moejit_error_code moejit_plan_prepare(moejit_plan* plan, moejit_engine* engine,
                                      moejit_device* device) {
  constexpr const char* kFunction = "moejit_plan_prepare";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (plan == nullptr) return null_argument(Stage::kLoad, "plan", kFunction);
    if (engine == nullptr) return null_argument(Stage::kLoad, "engine", kFunction);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", kFunction);
    return prepare_once(*plan, device->device, device->place, "device", [&] {
      return PreparedPlan::prepare(plan->plan, *engine->engine, *device->device);
    });
  });
}

moejit_error_code moejit_plan_prepare_in_group(moejit_plan* plan, moejit_engine* engine,
                                               moejit_group* group) {
  constexpr const char* kFunction = "moejit_plan_prepare_in_group";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (plan == nullptr) return null_argument(Stage::kLoad, "plan", kFunction);
    if (engine == nullptr) return null_argument(Stage::kLoad, "engine", kFunction);
    if (group == nullptr) return null_argument(Stage::kLoad, "group", kFunction);
    return prepare_once(*plan, group->device, group->place, "group", [&] {
      return PreparedPlan::prepare(plan->plan, *engine->engine, *group->group);
    });
  });
}

moejit_error_code moejit_plan_call(moejit_plan* plan, const char* name, const moejit_call* call) {
  constexpr const char* kFunction = "moejit_plan_call";
  return guarded(Stage::kLaunch, [&]() -> Result<void> {
    if (plan == nullptr) return null_argument(Stage::kLaunch, "plan", kFunction);
    if (name == nullptr) return null_argument(Stage::kLaunch, "name", kFunction);
    if (call == nullptr) return null_argument(Stage::kLaunch, "call", kFunction);
    if (plan->prepared == nullptr)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("{} is not prepared", plan->plan->subject),
                  fmt::format("call moejit_plan_prepare{}() once before",
                              plan->plan->group ? "_in_group" : ""));
    MOEJIT_TRY_ASSIGN(const std::size_t index, find_call(*plan->plan, name));
    moejit::bindings::GivenCall given;
    MOEJIT_TRY(moejit::bindings::read_call(*plan, plan->plan->calls[index], *call, given));
    return plan->prepared->call(index, given.tensors.span(), given.memory, given.stream);
  });
}
