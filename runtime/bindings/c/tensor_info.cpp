// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>

namespace {

using moejit::Result;
using moejit::Stage;
using moejit::bindings::check_index;
using moejit::bindings::describe_tensor;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::compiler::TensorPlan;

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
    return describe_tensor(layer->plan, *layer, index, info);
  });
}

moejit_error_code moejit_layer_get_tensor_place(const moejit_layer* layer, size_t index,
                                                int64_t tokens, moejit_tensor_place* place) {
  constexpr const char* kFunction = "moejit_layer_get_tensor_place";
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (layer == nullptr) return null_argument(Stage::kPlan, "layer", kFunction);
    if (place == nullptr) return null_argument(Stage::kPlan, "place", kFunction);
    MOEJIT_TRY(check_index(layer->plan, index));
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
    return describe_tensor(layer->plan, *layer, std::string_view(name),
                           "moejit_layer_get_plan_text", info);
  });
}
