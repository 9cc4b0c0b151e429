// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of the C interface that runs operations, single steps of a layer: described, planned and
// prepared as layers are, with the same engines, devices and calls. docs/operations-api.md
// describes each one with its tensors; <moejit/moejit.h> says what holds for all functions and
// records.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moejit_operation moejit_operation;

typedef struct moejit_operation_options {
  size_t struct_size;
  const char* source_name;  // what errors call the description, such as its path; NULL: "operation"
  const char* tuning;       // as that of moejit_layer_options
} moejit_operation_options;

// Parses the description of an operation, a JSON text of `json_bytes` bytes, and plans it for a
// target. `options` may be NULL. Errors: those of moejit_layer_create().
MOEJIT_API moejit_error_code moejit_operation_create(const char* json, size_t json_bytes,
                                                     const char* target,
                                                     const moejit_operation_options* options,
                                                     moejit_operation** operation);
MOEJIT_API void moejit_operation_destroy(moejit_operation* operation);

typedef struct moejit_operation_info {
  size_t struct_size;
  const char* name;    // "quantize", "grouped_gemm", ...; valid as long as the operation, as
  const char* target;  // "cuda:sm_90a" or "sim" is
  size_t tensor_count;
  size_t kernel_count;
  int64_t max_tokens;       // most T of a call; of operations whose tensors have none, most P or C
  int64_t workspace_bytes;  // that a call over max_tokens needs
  int64_t is_prepared;
  const char* plan_digest;  // as that of moejit_layer_info
} moejit_operation_info;
MOEJIT_API moejit_error_code moejit_operation_get_info(const moejit_operation* operation,
                                                       moejit_operation_info* info);

typedef struct moejit_operation_sizes {
  size_t struct_size;
  int64_t workspace_bytes;  // that a call needs at least
} moejit_operation_sizes;

// Tells the sizes of a call over `tokens` tokens, or as many rows or columns where the tensors have
// no T. MOEJIT_ERROR_INVALID_VALUE: less than 0, or more than max_tokens.
MOEJIT_API moejit_error_code moejit_operation_get_sizes(const moejit_operation* operation,
                                                        int64_t tokens,
                                                        moejit_operation_sizes* sizes);

// The description with every field, and the plan, as of layers. Valid as long as the operation.
MOEJIT_API moejit_error_code moejit_operation_get_json(const moejit_operation* operation,
                                                       const char** json);
MOEJIT_API moejit_error_code moejit_operation_get_plan_json(const moejit_operation* operation,
                                                            const char** json);
MOEJIT_API moejit_error_code moejit_operation_get_plan_text(const moejit_operation* operation,
                                                            int32_t explain, const char** text);

// moejit_tensor_info::used_by of every tensor of an operation. Their sizes called "T", "P", "C" and
// "C/128" may be smaller in a call, the others are exactly those of the plan.
enum { MOEJIT_USED_BY_RUN = 512 };

// Tell about a tensor of the plan, as moejit_layer_get_tensor() and moejit_layer_find_tensor() do.
MOEJIT_API moejit_error_code moejit_operation_get_tensor(const moejit_operation* operation,
                                                         size_t index, moejit_tensor_info* info);
MOEJIT_API moejit_error_code moejit_operation_find_tensor(const moejit_operation* operation,
                                                          const char* name,
                                                          moejit_tensor_info* info);

// Tells the shape and bytes of a tensor, by its index, in a call over `tokens` tokens, or as many
// rows or columns where the tensors have no T: of outputs, what to allocate. P and C are the most
// that such a call may need. MOEJIT_ERROR_INVALID_VALUE: no such tensor; tokens less than 0, or
// more than max_tokens.
MOEJIT_API moejit_error_code moejit_operation_get_tensor_place(const moejit_operation* operation,
                                                               size_t index, int64_t tokens,
                                                               moejit_tensor_place* place);

// Compiles and loads the kernels, with the rules and errors of moejit_layer_prepare().
MOEJIT_API moejit_error_code moejit_operation_prepare(moejit_operation* operation,
                                                      moejit_engine* engine, moejit_device* device);

// Runs the operation. What holds for the calls of a layer holds here too; the call has neither a
// saved nor a deferred block. Sizes called T, P and C are told by the first tensor that has them.
// Where tensors have both T and P, P is at least what a routing of T tokens may need, or
// max_permuted_rows (MOEJIT_ERROR_TENSOR_MISMATCH).
MOEJIT_API moejit_error_code moejit_operation_run(moejit_operation* operation,
                                                  const moejit_call* call);

// One tensor of the list of multi_cast_transpose, in device memory: X [rows, columns] in the
// input's dtype becomes its cast and the cast's transpose. The operation's "tensors" I64 [N, 8] is
// an array of these. Multiples of 16 in sizes and addresses are faster.
typedef struct moejit_cast_transpose_tensor {
  const void* input;        // [rows, columns]
  uint8_t* output;          // [rows, columns]
  uint8_t* output_colwise;  // [columns, rows]: the same bytes, transposed
  const float* scale;       // [1], what values are multiplied by; NULL: 1
  float* amax;              // [1], is raised to the largest magnitude; NULL: not wanted
  float* scale_inv;         // [1]: 1 / scale; NULL: not wanted
  int64_t rows;             // as in the description, in its order
  int64_t columns;
} moejit_cast_transpose_tensor;

#ifdef __cplusplus
}
#endif

// NOLINTEND
