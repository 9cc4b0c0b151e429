// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/dlpack_dtype.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/plan_handle.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::bindings::tell;
using moejit::bindings::write_record;
using moejit::compiler::BlockUse;
using moejit::compiler::CallPlan;
using moejit::compiler::Plan;
using moejit::compiler::TensorPlan;
using moejit::compiler::TensorRole;

moejit_role role_of(TensorRole role) {
  switch (role) {
    case TensorRole::kInput: return MOEJIT_ROLE_INPUT;
    case TensorRole::kWeight: return MOEJIT_ROLE_WEIGHT;
    case TensorRole::kQuantized: return MOEJIT_ROLE_QUANTIZED;
    case TensorRole::kDispatched: return MOEJIT_ROLE_DISPATCHED;
    case TensorRole::kOutput: return MOEJIT_ROLE_OUTPUT;
    case TensorRole::kState: return MOEJIT_ROLE_STATE;
    case TensorRole::kSaved: return MOEJIT_ROLE_SAVED;
    case TensorRole::kDeferred: return MOEJIT_ROLE_DEFERRED;
    case TensorRole::kGroup: return MOEJIT_ROLE_GROUP;
    case TensorRole::kWorkspace: break;
  }
  return MOEJIT_ROLE_WORKSPACE;
}

uint32_t access_of(BlockUse use) {
  return use == BlockUse::kNone   ? MOEJIT_ACCESS_NONE
         : use == BlockUse::kRead ? MOEJIT_ACCESS_READ
                                  : MOEJIT_ACCESS_WRITE;
}

// Returns whether a call reads what the caller put into an output.
bool is_updated(const Plan& plan, const TensorPlan& tensor) {
  if (tensor.role != TensorRole::kOutput) return false;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i)
    if (touches(plan.kernels[i], tensor.name) && !plan.calls[call_of_kernel(plan, i)].adds)
      return reads(plan.kernels[i], tensor.name);
  return false;
}

Result<void> check_index(const Plan& plan, std::size_t index) {
  const std::size_t count = plan.tensors.size();
  if (index < count) return {};
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("{} has {} tensors, got the index {}", plan.subject, count, index));
}

Result<void> describe(const moejit_plan& handle, std::size_t index, moejit_tensor_info* info) {
  MOEJIT_TRY(check_index(*handle.plan, index));
  const TensorPlan& tensor = handle.plan->tensors[index];
  const moejit::bindings::CallerTensor& known = handle.tensors[index];
  return write_record(Stage::kPlan,
                      {.name = tensor.name.c_str(),
                       .dtype_name = to_string(tensor.dtype).data(),  // a literal
                       .shape = known.shape.data(),
                       .symbols = known.symbols.data(),
                       .bytes = tensor.bytes,
                       .offset = known.offset,
                       .dtype = moejit::bindings::dl_data_type(tensor.dtype),
                       .ndim = static_cast<int32_t>(known.shape.size()),
                       .role = role_of(tensor.role),
                       .is_optional = tensor.is_optional ? 1u : 0u,
                       .is_optional_in_backward = tensor.is_optional_in_backward ? 1u : 0u,
                       .is_updated = is_updated(*handle.plan, tensor) ? 1u : 0u,
                       .first_value = tensor.first_value,
                       .first_use = tensor.first_use,
                       .last_use = tensor.last_use,
                       .quantized_block = known.quantized_block,
                       .quantized_offset = known.quantized_offset},
                      info, "moejit_tensor_info");
}

}  // namespace

moejit_error_code moejit_plan_get_tensor(const moejit_plan* plan, size_t index,
                                         moejit_tensor_info* info) {
  return tell(plan, info, "info", "moejit_plan_get_tensor",
              [&] { return describe(*plan, index, info); });
}

moejit_error_code moejit_plan_find_tensor(const moejit_plan* plan, const char* name,
                                          moejit_tensor_info* info) {
  constexpr const char* kFunction = "moejit_plan_find_tensor";
  return tell(plan, info, "info", kFunction, [&]() -> Result<void> {
    if (name == nullptr) return null_argument(Stage::kPlan, "name", kFunction);
    const auto& tensors = plan->plan->tensors;
    const auto found = std::ranges::find(tensors, std::string_view(name), &TensorPlan::name);
    if (found != tensors.end())
      return describe(*plan, static_cast<std::size_t>(found - tensors.begin()), info);
    return fail(Stage::kPlan, ErrorCode::kMissingTensor,
                fmt::format("{} has no tensor {}", plan->plan->subject, name),
                "moejit_plan_get_text() lists them");
  });
}

moejit_error_code moejit_plan_get_tensor_place(const moejit_plan* plan, size_t index,
                                               int64_t tokens, moejit_tensor_place* place) {
  return tell(plan, place, "place", "moejit_plan_get_tensor_place", [&]() -> Result<void> {
    MOEJIT_TRY(check_index(*plan->plan, index));
    MOEJIT_TRY(plan->layout.sizes(tokens));  // fails if T is out of range
    const TensorPlan& tensor = plan->plan->tensors[index];
    const moejit::compiler::CallLayout call = plan->layout.at(tokens);
    moejit_tensor_place result{
        .offset = block_offset(tensor) < 0 ? plan->tensors[index].offset : call.offset[index],
        .bytes = size_bytes(tensor.dtype)};
    for (std::size_t i = 0; i < std::min(tensor.shape.size(), std::size(result.shape)); ++i) {
      result.shape[i] = size_in_call(tensor.shape[i], call.dims);
      result.bytes *= result.shape[i];
    }
    return write_record(Stage::kPlan, result, place, "moejit_tensor_place");
  });
}

moejit_error_code moejit_plan_get_call(const moejit_plan* plan, size_t index,
                                       moejit_call_info* info) {
  return tell(plan, info, "info", "moejit_plan_get_call", [&]() -> Result<void> {
    const auto& calls = plan->plan->calls;
    if (index >= calls.size())
      return fail(Stage::kPlan, ErrorCode::kInvalidValue,
                  fmt::format("{} has {} calls, got the index {}", plan->plan->subject,
                              calls.size(), index));
    const CallPlan& call = calls[index];
    const auto kernels =
        std::ranges::count(call.steps, false, &moejit::compiler::CallStep::is_collective);
    return write_record(Stage::kPlan,
                        {.name = call.name.c_str(),
                         .tensors = plan->calls[index].data(),
                         .tensor_count = plan->calls[index].size(),
                         .kernel_count = static_cast<std::size_t>(kernels),
                         .workspace = access_of(call.workspace),
                         .saved = access_of(call.saved),
                         .deferred = access_of(call.deferred),
                         .adds = call.adds ? 1 : 0,
                         .is_of_all_ranks = call.is_of_all_ranks ? 1 : 0,
                         .padding = 0,
                         .workspace_bytes = call.workspace_bytes},
                        info, "moejit_call_info");
  });
}
