// SPDX-License-Identifier: Apache-2.0
#include "compiler/plan.h"
#include "runtime/bindings/c/dlpack_dtype.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::LayerTensor;
using moejit::bindings::null_argument;
using moejit::compiler::TensorPlan;
using moejit::compiler::TensorRole;

moejit_role role_of(TensorRole role) {
  switch (role) {
    case TensorRole::kInput: return MOEJIT_ROLE_INPUT;
    case TensorRole::kWeight: return MOEJIT_ROLE_WEIGHT;
    case TensorRole::kQuantized: return MOEJIT_ROLE_QUANTIZED;
    case TensorRole::kDispatched: return MOEJIT_ROLE_DISPATCHED;
    case TensorRole::kOutput: return MOEJIT_ROLE_OUTPUT;
    case TensorRole::kSaved: return MOEJIT_ROLE_SAVED;
    case TensorRole::kDeferred: return MOEJIT_ROLE_DEFERRED;
    case TensorRole::kWorkspace: return MOEJIT_ROLE_WORKSPACE;
  }
  return MOEJIT_ROLE_WORKSPACE;
}

Result<void> describe(const moejit_layer& layer, size_t index, moejit_tensor_info* info) {
  const TensorPlan& plan = layer.plan.tensors[index];
  const LayerTensor& tensor = layer.tensors[index];
  return moejit::bindings::write_record(
      Stage::kPlan,
      {.name = plan.name.c_str(),
       .dtype_name = to_string(plan.dtype).data(),  // of a literal
       .shape = tensor.shape.data(),
       .symbols = tensor.symbols.data(),
       .bytes = plan.bytes,
       .offset = block_offset(plan),
       .dtype = moejit::bindings::dl_data_type(plan.dtype),
       .ndim = static_cast<int32_t>(tensor.shape.size()),
       .role = role_of(plan.role),
       .used_by = tensor.used_by,
       .is_optional = plan.is_optional ? 1u : 0u,
       .is_optional_in_backward = plan.is_optional_in_backward ? 1u : 0u},
      info, "moejit_tensor_info");
}

Result<void> check_index(const moejit_layer& layer, size_t index) {
  const size_t count = layer.plan.tensors.size();
  if (index < count) return {};
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("{} has {} tensors, got the index {}", layer.plan.subject, count, index));
}

Result<void> check_arguments(const moejit_layer* layer, const moejit_tensor_info* info,
                             const char* function) {
  if (layer == nullptr) return null_argument(Stage::kPlan, "layer", function);
  if (info == nullptr) return null_argument(Stage::kPlan, "info", function);
  return {};
}

}  // namespace

moejit_error_code moejit_layer_get_tensor(const moejit_layer* layer, size_t index,
                                          moejit_tensor_info* info) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_arguments(layer, info, "moejit_layer_get_tensor"));
    MOEJIT_TRY(check_index(*layer, index));
    return describe(*layer, index, info);
  });
}

moejit_error_code moejit_layer_get_tensor_place(const moejit_layer* layer, size_t index,
                                                int64_t tokens, moejit_tensor_place* place) {
  constexpr const char* kFunction = "moejit_layer_get_tensor_place";
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kPlan, "layer", kFunction);
    if (place == nullptr) return null_argument(Stage::kPlan, "place", kFunction);
    MOEJIT_TRY(check_index(*layer, index));
    MOEJIT_TRY(layer->layout.sizes(tokens));  // which checks T
    const TensorPlan& plan = layer->plan.tensors[index];
    const moejit::compiler::CallLayout call = layer->layout.at(tokens);
    moejit_tensor_place result{.offset = block_offset(plan) < 0 ? -1 : call.offset[index],
                               .bytes = size_bytes(plan.dtype)};
    for (std::size_t i = 0; i < std::min(plan.shape.size(), std::size(result.shape)); ++i) {
      result.shape[i] = size_in_call(plan.shape[i], call.dims);
      result.bytes *= result.shape[i];
    }
    return moejit::bindings::write_record(Stage::kPlan, result, place, "moejit_tensor_place");
  });
}

moejit_error_code moejit_layer_find_tensor(const moejit_layer* layer, const char* name,
                                           moejit_tensor_info* info) {
  constexpr const char* kFunction = "moejit_layer_find_tensor";
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    MOEJIT_TRY(check_arguments(layer, info, kFunction));
    if (name == nullptr) return null_argument(Stage::kPlan, "name", kFunction);
    const auto& tensors = layer->plan.tensors;
    const auto found = std::ranges::find(tensors, std::string_view(name), &TensorPlan::name);
    if (found != tensors.end())
      return describe(*layer, static_cast<size_t>(found - tensors.begin()), info);
    return fail(Stage::kPlan, ErrorCode::kMissingTensor,
                fmt::format("{} has no tensor {}", layer->plan.subject, name),
                "moejit_layer_get_plan_text() lists them");
  });
}
