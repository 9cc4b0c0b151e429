// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of torch that the operators are made of, declared by hand. torch keeps their
// signatures from 2.10 on, for any C++ library (its notes call them the stable ABI of LibTorch). No
// header of torch is included. So libmoejit_torch.so is built without torch, and one binary serves
// every version. All of them return 0, or another number if they failed; torch has then printed
// why. libtorch_cpu.so exports them.

#include <cstddef>
#include <cstdint>

namespace moejit::torch {

// An argument or result of an operator: a handle, or the value itself in the lowest bytes.
using Value = uint64_t;
using Code = int32_t;
using Kernel = void (*)(Value* stack, uint64_t argument_count, uint64_t result_count);

struct TensorOpaque;
struct StringOpaque;
struct ListOpaque;
struct LibraryOpaque;

extern "C" {

// Operators: a namespace with its schemas, and the kernels of one dispatch key.
Code aoti_torch_library_init_def(const char* name, const char* file, uint32_t line,
                                 LibraryOpaque** library);
Code aoti_torch_library_def(LibraryOpaque* library, const char* schema);
Code aoti_torch_library_init_impl(const char* name, const char* key, const char* file,
                                  uint32_t line, LibraryOpaque** library);
// `version` is the version of torch whose conventions the kernel follows.
Code torch_library_impl(LibraryOpaque* library, const char* operator_name, Kernel kernel,
                        uint64_t version);

// Tensors. Anything returned by address belongs to the tensor.
Code aoti_torch_delete_tensor_object(TensorOpaque* tensor);
Code aoti_torch_get_data_ptr(TensorOpaque* tensor, void** data);
Code aoti_torch_get_dim(TensorOpaque* tensor, int64_t* dim);
Code aoti_torch_get_sizes(TensorOpaque* tensor, int64_t** sizes);
Code aoti_torch_get_strides(TensorOpaque* tensor, int64_t** strides);
Code aoti_torch_get_dtype(TensorOpaque* tensor, int32_t* dtype);
Code aoti_torch_get_device_type(TensorOpaque* tensor, int32_t* type);
Code aoti_torch_get_device_index(TensorOpaque* tensor, int32_t* index);
Code aoti_torch_empty_strided(int64_t dim, const int64_t* sizes, const int64_t* strides,
                              int32_t dtype, int32_t device_type, int32_t device_index,
                              TensorOpaque** tensor);
Code aoti_torch_zero_(TensorOpaque* tensor);
Code aoti_torch_copy_(TensorOpaque* tensor, TensorOpaque* source, int32_t non_blocking);

// Lists. An item that is read or handed over is a reference of its own.
Code torch_new_list_reserve_size(size_t size, ListOpaque** list);
Code torch_list_size(ListOpaque* list, size_t* size);
Code torch_list_get_item(ListOpaque* list, size_t index, Value* item);
Code torch_list_push_back(ListOpaque* list, Value item);
Code torch_delete_list(ListOpaque* list);

// Strings.
Code torch_string_length(StringOpaque* string, size_t* length);
Code torch_string_c_str(StringOpaque* string, const char** text);
Code torch_delete_string(StringOpaque* string);

// Numbers that stand for dtypes and devices.
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_float8_e4m3fn();
int32_t aoti_torch_dtype_float8_e5m2();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();

}  // extern "C"
}  // namespace moejit::torch
