// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/recipe.h"
#include "compiler/support/json_document.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_describe.h"
#include "runtime/bindings/c/records.h"

#include <fmt/ranges.h>
#include <limits>
#include <memory>
#include <string>
#include <vector>

struct moejit_description {
  std::string json, router, shared;
  moejit::compiler::HuggingFaceLayer made;
  std::vector<const char*> used_keys, notes;  // point into `made`
};

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::compiler::HuggingFaceOptions;

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

Result<HuggingFaceOptions> read_options(const moejit_hugging_face_options& given) {
  HuggingFaceOptions options;
  if (given.max_tokens != 0) options.max_tokens = given.max_tokens;
  if (given.expert_parallel < 0 || given.expert_parallel > std::numeric_limits<int32_t>::max())
    return fail(
        Stage::kParse, ErrorCode::kInvalidValue,
        fmt::format("option expert_parallel: got {}, wanted at least 1", given.expert_parallel));
  if (given.expert_parallel != 0)
    options.expert_parallel = static_cast<int32_t>(given.expert_parallel);
  if (!given.recipe) return options;
  const auto recipe = moejit::compiler::find_recipe(given.recipe);
  if (!recipe) {
    std::vector<std::string_view> names;
    for (const auto& known : moejit::compiler::kRecipes) names.push_back(to_string(known));
    return fail(Stage::kParse, ErrorCode::kInvalidValue,
                fmt::format("option recipe: got {}, wanted one of {}",
                            moejit::quote_for_message(given.recipe), fmt::join(names, ", ")));
  }
  options.recipe = *recipe;
  return options;
}

}  // namespace

moejit_error_code moejit_describe_hugging_face(const char* json, size_t json_bytes,
                                               const moejit_hugging_face_options* options,
                                               moejit_description** description) {
  constexpr const char* kFunction = "moejit_describe_hugging_face";
  return guarded(Stage::kParse, [&]() -> Result<void> {
    if (description == nullptr) return null_argument(Stage::kParse, "description", kFunction);
    *description = nullptr;
    if (json == nullptr) return null_argument(Stage::kParse, "json", kFunction);
    MOEJIT_TRY_ASSIGN(const auto given, moejit::bindings::read_record(
                                            Stage::kParse, options, "moejit_hugging_face_options"));
    MOEJIT_TRY_ASSIGN(const HuggingFaceOptions read, read_options(given));
    auto handle = std::make_unique<moejit_description>();
    MOEJIT_TRY_ASSIGN(
        handle->made,
        moejit::compiler::layer_from_hugging_face(
            {json, json_bytes}, given.source_name == nullptr ? "config" : given.source_name, read));
    handle->json = to_json_without_padding(handle->made.layer);
    if (handle->made.router) handle->router = to_json(*handle->made.router);
    if (handle->made.shared && handle->made.shared->experts > 0)
      handle->shared = to_json(*handle->made.shared);
    handle->used_keys = pointers_to(handle->made.used_keys);
    handle->notes = pointers_to(handle->made.notes);
    *description = handle.release();
    return {};
  });
}

void moejit_description_destroy(moejit_description* description) { delete description; }

moejit_error_code moejit_description_get_info(const moejit_description* description,
                                              moejit_description_info* info) {
  constexpr const char* kFunction = "moejit_description_get_info";
  return guarded(Stage::kParse, [&]() -> Result<void> {
    if (description == nullptr) return null_argument(Stage::kParse, "description", kFunction);
    if (info == nullptr) return null_argument(Stage::kParse, "info", kFunction);
    return moejit::bindings::write_record(
        Stage::kParse,
        {.json = description->json.c_str(),
         .model_type = description->made.model_type.c_str(),
         .used_keys = description->used_keys.data(),
         .notes = description->notes.data(),
         .used_key_count = description->used_keys.size(),
         .note_count = description->notes.size(),
         .router = description->made.router ? description->router.c_str() : nullptr,
         .shared = description->shared.empty() ? nullptr : description->shared.c_str()},
        info, "moejit_description_info");
  });
}
