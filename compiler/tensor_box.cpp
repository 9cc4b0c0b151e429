// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 32;
constexpr int64_t kMaxStride = int64_t{1} << 40;  // exclusive
constexpr int32_t kMaxBox = 256;
constexpr int64_t kChunkBytes = 16;
constexpr int64_t kSwizzledRowBytes = 128;

tl::unexpected<Error> refuse_box(std::string message) {
  return fail(Stage::kLaunch, ErrorCode::kInternal, "tensor map: " + std::move(message));
}

Result<void> check_dimension(const TensorBox& box, std::size_t i) {
  if (box.dims[i] < 1 || box.dims[i] > kMaxDim) {
    return refuse_box(fmt::format("dimension {} is {}, wanted 1 to 2^32", i, box.dims[i]));
  }
  if (box.box[i] < 1 || box.box[i] > kMaxBox) {
    return refuse_box(fmt::format("the box has {} elements of dimension {}, wanted 1 to {}",
                                  box.box[i], i, kMaxBox));
  }
  return {};
}

// Checks the stride of dimension i + 1; it must be at least `least` bytes.
Result<void> check_stride(int64_t stride, std::size_t i, int64_t least) {
  if (stride % kChunkBytes != 0 || stride >= kMaxStride || stride < least) {
    return refuse_box(
        fmt::format("the stride of dimension {} is {} bytes, wanted a multiple of {} from "
                    "{} up to 2^40",
                    i + 1, stride, kChunkBytes, least));
  }
  return {};
}

}  // namespace

Result<void> check_tensor_box(const TensorBox& box, const void* address) {
  if (address == nullptr || reinterpret_cast<uintptr_t>(address) % kChunkBytes != 0) {
    return refuse_box(
        fmt::format("the tensor is at address {:#x}, wanted a multiple of {} that is not 0",
                    reinterpret_cast<uintptr_t>(address), kChunkBytes));
  }
  if (box.rank < 2 || box.rank > 4) {
    return refuse_box(fmt::format("the tensor has rank {}, wanted 2 to 4", box.rank));
  }
  const auto rank = static_cast<std::size_t>(box.rank);
  for (std::size_t i = 0; i < rank; ++i) MOEJIT_TRY(check_dimension(box, i));
  const int64_t least = box.dims[0] * size_bytes(box.dtype);
  for (std::size_t i = 0; i + 1 < rank; ++i) {
    MOEJIT_TRY(check_stride(box.strides_bytes[i], i, least));
  }
  const int64_t row_bytes = box.box[0] * size_bytes(box.dtype);
  if (row_bytes % kChunkBytes != 0) {
    return refuse_box(fmt::format("a row of the box has {} bytes, wanted a multiple of {}",
                                  row_bytes, kChunkBytes));
  }
  if (box.is_swizzled && row_bytes > kSwizzledRowBytes) {
    return refuse_box(fmt::format("a row of the swizzled box has {} bytes, wanted at most {}",
                                  row_bytes, kSwizzledRowBytes));
  }
  return {};
}

}  // namespace moejit::compiler
