// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"

namespace {

using moejit::Result;
using moejit::Stage;
using moejit::bindings::describe_tensor;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;

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
    return moejit::bindings::describe_place(layer->plan, *layer, index, tokens, place);
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
