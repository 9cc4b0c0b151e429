// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/tensor_map.h"

#include "compiler/launch.h"

#include <array>
#include <cstring>

namespace moejit::runtime {
namespace {

// Returns the driver's type. It has none for FP8, whose elements are plain bytes here.
CUtensorMapDataType data_type_of(compiler::DType dtype) {
  switch (dtype) {
    case compiler::DType::kBF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case compiler::DType::kF16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case compiler::DType::kF32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case compiler::DType::kI32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case compiler::DType::kU32: return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case compiler::DType::kI64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case compiler::DType::kF8E4M3:
    case compiler::DType::kF8E5M2:
    case compiler::DType::kF8E8M0:
    case compiler::DType::kF4E2M1x2:
    case compiler::DType::kU8: break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

}  // namespace

Result<device::TensorMap> encode_cuda_tensor_map(const DriverApi& api,
                                                 const compiler::TensorBox& box,
                                                 const void* address) {
  static_assert(sizeof(CUtensorMap) == sizeof(device::TensorMap));
  static_assert(alignof(device::TensorMap) == 64, "what copies want of a map in memory");
  MOEJIT_TRY(check_tensor_box(box, address));
  constexpr std::array<cuuint32_t, 4> kElementStrides{1, 1, 1, 1};
  std::array<cuuint64_t, 4> dims{};
  std::array<cuuint32_t, 4> extent{};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    dims[i] = static_cast<cuuint64_t>(box.dims[i]);
    extent[i] = static_cast<cuuint32_t>(box.box[i]);
  }
  std::array<cuuint64_t, 3> strides{};
  for (std::size_t i = 0; i < strides.size(); ++i)
    strides[i] = static_cast<cuuint64_t>(box.strides_bytes[i]);
  CUtensorMap encoded;
  MOEJIT_TRY_DRIVER(api, Stage::kLaunch, tensor_map_encode_tiled,
                    (&encoded, data_type_of(box.dtype), static_cast<cuuint32_t>(box.rank),
                     const_cast<void*>(address), dims.data(), strides.data(), extent.data(),
                     kElementStrides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                     box.is_swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                     box.l2_promotion == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                             : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  device::TensorMap map{};
  std::memcpy(&map, &encoded, sizeof(map));
  return map;
}

}  // namespace moejit::runtime
