// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/operations.h"

#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/prepared_plans.h"

#include <memory>

namespace moejit::torch {
namespace {

// Reads the parts of the plan that the operator needs, and returns the plan's digest.
std::string_view read_plan(ReadyOperation& ready) {
  moejit_plan_info plan{};
  plan.struct_size = sizeof plan;
  check(moejit_plan_get_info(ready.operation, &plan));
  for (std::size_t i = 0; i < plan.tensor_count; ++i) {
    moejit_tensor_info info{};
    info.struct_size = sizeof info;
    check(moejit_plan_get_tensor(ready.operation, i, &info));
    if (info.is_optional != 0) continue;
    (info.role == MOEJIT_ROLE_OUTPUT ? ready.outputs : ready.inputs).push_back(planned(info, i));
  }
  return plan.plan_digest;
}

struct OperationDeleter {
  void operator()(moejit_plan* operation) const { moejit_plan_destroy(operation); }
};

ReadyOperation prepare_operation(std::string_view text, const Place& place) {
  const PlanText read = read_plan_text(text, "operation");
  const std::string target = check_text(read, "operation", place.device);
  ReadyOperation ready;
  ready.device = place.device;
  check(moejit_plan_create(read.json.data(), read.json.size(), target.c_str(), nullptr,
                           &ready.operation));
  std::unique_ptr<moejit_plan, OperationDeleter> owner(ready.operation);
  check_is_current(read, moejit_version(), read_plan(ready));
  const moejit_error_code code = moejit_plan_prepare(ready.operation, place.engine, place.device);
  check(code, hint_of_preparing(code, read.json));
  owner.release();
  return ready;
}

}  // namespace

const ReadyOperation& ready_operation(std::string_view text, DLDevice device) {
  static auto* const operations = new PreparedPlans<ReadyOperation>;
  return operations->get(text, device, prepare_operation);
}

}  // namespace moejit::torch
