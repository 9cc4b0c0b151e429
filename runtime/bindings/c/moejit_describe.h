// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of the C interface that makes layer descriptions from models' published configurations.
// <moejit/moejit.h> says what holds for all functions and records.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

// A layer description and what was noted while it was made. It is a handle, as moejit.h explains.
typedef struct moejit_description moejit_description;

typedef struct moejit_hugging_face_options {
  size_t struct_size;
  const char* source_name;  // what errors call the configuration, such as its path; NULL: "config"
  const char* recipe;       // of the description; NULL: "fp8_flow"
  int64_t max_tokens;       // of the description; 0: 8192
  int64_t expert_parallel;  // ranks that share the experts evenly; 0: 1
} moejit_hugging_face_options;

// Makes the layer description that a model's config.json of `json_bytes` bytes implies, as `moejit
// layer --from-hf` does (docs/layer-description.md). `options` may be NULL. Errors:
// MOEJIT_ERROR_INVALID_JSON, _MISSING_KEY, _WRONG_TYPE, _INVALID_VALUE, which name the place in the
// configuration or the option; _UNSUPPORTED for a model whose layer no description can express.
MOEJIT_API moejit_error_code moejit_describe_hugging_face(
    const char* json, size_t json_bytes, const moejit_hugging_face_options* options,
    moejit_description** description);
MOEJIT_API void moejit_description_destroy(moejit_description* description);

typedef struct moejit_description_info {
  size_t struct_size;
  const char* json;  // the layer description; valid as long as the handle, as the other pointers
  const char* model_type;        // of the configuration
  const char* const* used_keys;  // "num_experts_per_tok -> top_k = 8", ...
  const char* const* notes;      // sentences about what the description does not express
  size_t used_key_count;
  size_t note_count;
  const char* router;  // how the model chooses experts, as docs/router.md says; NULL: notes say why
  // Its shared experts, JSON of a layer's "shared"; NULL: none, or notes say why.
  const char* shared;
} moejit_description_info;
MOEJIT_API moejit_error_code moejit_description_get_info(const moejit_description* description,
                                                         moejit_description_info* info);

#ifdef __cplusplus
}
#endif

// NOLINTEND
