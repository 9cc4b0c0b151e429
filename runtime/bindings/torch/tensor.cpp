// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/tensor.h"

#include "runtime/bindings/torch/failure.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace moejit::torch {
namespace {

// Codes of dtypes in DLPack 1.1; older headers lack them.
constexpr uint8_t kFloat8E4m3 = 10;
constexpr uint8_t kFloat8E5m2 = 12;
constexpr uint8_t kFloat8E8m0 = 14;
constexpr uint8_t kFloat4E2m1 = 17;
constexpr uint8_t kBool = 6;

// ScalarType::Float8_e8m0fnu and Float4_e2m1fn_x2 of torch/headeronly/core/ScalarType.h. No
// function of the stable interface returns them.
constexpr int32_t kTorchFloat8E8m0 = 44;
constexpr int32_t kTorchFloat4E2m1x2 = 45;

struct DtypePair {
  int32_t torchs;
  DLDataType dl;
};

const std::array<DtypePair, 14>& dtypes() {
  static const std::array<DtypePair, 14> pairs = {{
      {aoti_torch_dtype_bfloat16(), {kDLBfloat, 16, 1}},
      {aoti_torch_dtype_uint8(), {kDLUInt, 8, 1}},
      {aoti_torch_dtype_float32(), {kDLFloat, 32, 1}},
      {aoti_torch_dtype_int32(), {kDLInt, 32, 1}},
      {aoti_torch_dtype_int64(), {kDLInt, 64, 1}},
      {aoti_torch_dtype_float16(), {kDLFloat, 16, 1}},
      {aoti_torch_dtype_float64(), {kDLFloat, 64, 1}},
      {aoti_torch_dtype_int8(), {kDLInt, 8, 1}},
      {aoti_torch_dtype_int16(), {kDLInt, 16, 1}},
      {aoti_torch_dtype_bool(), {kBool, 8, 1}},
      {aoti_torch_dtype_float8_e4m3fn(), {kFloat8E4m3, 8, 1}},
      {aoti_torch_dtype_float8_e5m2(), {kFloat8E5m2, 8, 1}},
      {kTorchFloat8E8m0, {kFloat8E8m0, 8, 1}},
      {kTorchFloat4E2m1x2, {kFloat4E2m1, 4, 2}},
  }};
  return pairs;
}

bool is_equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Returns torch's dtype with the same bytes as the library's. An unsigned word becomes a signed
// one, since torch has no arithmetic for unsigned words. Two numbers of E2M1 become a byte, since
// torch fills no tensors of these.
int32_t torch_dtype(DLDataType dtype) {
  if (dtype.code == kDLUInt && dtype.bits == 32) dtype.code = kDLInt;
  if (dtype.code == kFloat4E2m1) dtype = {kDLUInt, 8, 1};
  for (const DtypePair& pair : dtypes())
    if (is_equal(pair.dl, dtype)) return pair.torchs;
  fail(MOEJIT_ERROR_INTERNAL, "the plan has a tensor whose dtype torch lacks");
}

std::optional<DLDataType> dl_dtype(int32_t torchs) {
  for (const DtypePair& pair : dtypes())
    if (pair.torchs == torchs) return pair.dl;
  return std::nullopt;
}

std::optional<DLDevice> dl_device(int32_t type, int32_t index) {
  static const int32_t kCpu = aoti_torch_device_type_cpu();
  static const int32_t kCuda = aoti_torch_device_type_cuda();
  if (type == kCpu) return DLDevice{kDLCPU, 0};
  if (type == kCuda) return DLDevice{kDLCUDA, index < 0 ? 0 : index};
  return std::nullopt;
}

constexpr std::size_t kMostDims = 4;

}  // namespace

Tensor::Tensor(std::span<const int64_t> shape, DLDataType dtype, DLDevice device) {
  dl_.dtype = dtype;
  dl_.device = device;
  allocate(shape, torch_dtype(dtype));
}

void Tensor::allocate(std::span<const int64_t> shape, int32_t torch_dtype) {
  std::array<int64_t, kMostDims> strides{};
  if (shape.size() > strides.size()) fail(MOEJIT_ERROR_INTERNAL, "a result has 5 dimensions");
  int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  const bool is_cpu = dl_.device.device_type == kDLCPU;
  check_torch(aoti_torch_empty_strided(
                  static_cast<int64_t>(shape.size()), shape.data(), strides.data(), torch_dtype,
                  is_cpu ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda(),
                  dl_.device.device_id, &handle_),
              "aoti_torch_empty_strided");
  dl_.ndim = static_cast<int32_t>(shape.size());
  aoti_torch_get_data_ptr(handle_, &dl_.data);
  aoti_torch_get_sizes(handle_, &dl_.shape);
}

Tensor::Tensor(Tensor&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), dl_(other.dl_) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(dl_, other.dl_);
  return *this;
}

Tensor::~Tensor() {
  if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
}

void Tensor::describe(const char* name) {
  int64_t ndim = 0;
  int32_t dtype = 0;
  int32_t type = 0;
  int32_t index = 0;
  check_torch(aoti_torch_get_data_ptr(handle_, &dl_.data), "aoti_torch_get_data_ptr");
  check_torch(aoti_torch_get_sizes(handle_, &dl_.shape), "aoti_torch_get_sizes");
  check_torch(aoti_torch_get_strides(handle_, &dl_.strides), "aoti_torch_get_strides");
  check_torch(aoti_torch_get_dim(handle_, &ndim), "aoti_torch_get_dim");
  check_torch(aoti_torch_get_dtype(handle_, &dtype), "aoti_torch_get_dtype");
  check_torch(aoti_torch_get_device_type(handle_, &type), "aoti_torch_get_device_type");
  check_torch(aoti_torch_get_device_index(handle_, &index), "aoti_torch_get_device_index");
  dl_.ndim = static_cast<int32_t>(ndim);
  const std::optional<DLDevice> device = dl_device(type, index);
  if (!device)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         std::string("tensor ") + name + ": it is neither on the CPU nor on a CUDA device");
  dl_.device = *device;
  const std::optional<DLDataType> known = dl_dtype(dtype);
  if (!known)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         std::string("tensor ") + name + ": its dtype is none that the library knows");
  dl_.dtype = *known;
}

namespace {

std::string device_text(DLDevice device) {
  if (device.device_type == kDLCPU) return "the CPU";
  return "CUDA device " + std::to_string(device.device_id);
}

}  // namespace

void check_device(const char* name, const Tensor& tensor, const Tensor& first) {
  const DLDevice got = tensor.device(), wanted = first.device();
  if (got.device_type == wanted.device_type && got.device_id == wanted.device_id) return;
  fail(MOEJIT_ERROR_TENSOR_MISMATCH, std::string("tensor ") + name + ": it is on " +
                                         device_text(got) + ", wanted " + device_text(wanted) +
                                         " as the first tensor");
}

int64_t Tensor::element_count() const {
  int64_t count = 1;
  for (int32_t i = 0; i < dl_.ndim; ++i) count *= dl_.shape[i];
  return count;
}

bool Tensor::needs_copy() const {
  // The library refuses other addresses, since kernels move 16 bytes at a time.
  constexpr std::uintptr_t kAlignment = 16;
  if (reinterpret_cast<std::uintptr_t>(dl_.data) % kAlignment == 0 || element_count() == 0)
    return false;
  int64_t stride = 1;
  for (int32_t i = dl_.ndim; i-- > 0; stride *= dl_.shape[i])
    if (dl_.shape[i] != 1 && dl_.strides[i] != stride) return false;  // refused, wherever it is
  return dl_.ndim <= static_cast<int32_t>(kMostDims);
}

Tensor Tensor::copy() const {
  Tensor result;
  result.dl_.dtype = dl_.dtype;
  result.dl_.device = dl_.device;
  int32_t dtype = 0;
  check_torch(aoti_torch_get_dtype(handle_, &dtype), "aoti_torch_get_dtype");
  result.allocate({dl_.shape, static_cast<std::size_t>(dl_.ndim)}, dtype);
  // As below, torch would use OpenMP on the CPU.
  if (dl_.device.device_type == kDLCPU)
    std::memcpy(result.dl_.data, dl_.data, static_cast<std::size_t>(byte_count()));
  else
    check_torch(aoti_torch_copy_(result.handle_, handle_, 1), "aoti_torch_copy_");
  return result;
}

void Tensor::zero() {
  // torch sets many bytes with OpenMP, which after fork() waits forever for its threads.
  if (dl_.device.device_type == kDLCPU)
    std::memset(dl_.data, 0, static_cast<std::size_t>(byte_count()));
  else
    check_torch(aoti_torch_zero_(handle_), "aoti_torch_zero_");
}

Value Tensor::release() noexcept {
  return reinterpret_cast<Value>(std::exchange(handle_, nullptr));
}

}  // namespace moejit::torch
