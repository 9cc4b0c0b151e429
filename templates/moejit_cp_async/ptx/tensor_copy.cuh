// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/tensor_copy.cuh where the GPU has no bulk copies. All lanes of
// a warp call them. A load is a loop over the box's 16-byte chunks, which cp.async brings to the
// same swizzled places; chunks outside of the tensor become zeros. It counts on the barrier at
// end_copies(). A store is complete when its lanes return; a barrier then tells other warps. There
// are no clusters and no other proxy to order accesses with, and the tensor map is plain
// (core/plain_tensor_map.cuh).
//
// Rows of the tensor are whole chunks, and x is a multiple of a chunk.

#include "moejit_device/core/plain_tensor_map.cuh"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/mbarrier.cuh"

namespace moejit::device::ptx {

enum class CachePolicy : uint64_t { kNormal, kEvictFirst, kEvictLast };

MOEJIT_DEVICE void prefetch_tensor_map(const TensorMap&) {}
MOEJIT_DEVICE void fence_proxy_async() {}
MOEJIT_DEVICE void fence_proxy_async_global() {}
MOEJIT_DEVICE void commit_tensor_stores() {}
template <int32_t kPending>
MOEJIT_DEVICE void wait_tensor_stores_read() {}
template <int32_t kPending>
MOEJIT_DEVICE void wait_tensor_stores() {}

struct BoxPlace {
  int32_t x, y, z, w;
};

MOEJIT_DEVICE bool is_in(int32_t index, int64_t size) { return index >= 0 && index < size; }

// Calls body(shared, global, is_inside) for each of a lane's chunks of a box.
template <typename Body>
MOEJIT_DEVICE void for_each_chunk(uint32_t box, const TensorMap& opaque, const BoxPlace& at,
                                  const Body& body) {
  const auto& map = reinterpret_cast<const PlainTensorMap&>(opaque);
  const int32_t row_bytes = map.box[0] * map.element_bytes;
  const int32_t chunks = row_bytes / 16, lane = lane_index();
  const int32_t box_y = map.box[1], box_z = map.box[2], rows = box_y * box_z * map.box[3];
  const int64_t first_byte = int64_t{at.x} * map.element_bytes;
  const int64_t tensor_bytes = map.dims[0] * map.element_bytes;
  int32_t row = lane / chunks, chunk = lane % chunks;
  int32_t y = row % box_y, z = row / box_y % box_z, w = row / box_y / box_z;
  const int32_t more_rows = 32 / chunks, more_chunks = 32 % chunks;
#pragma unroll 1
  while (row < rows) {
    const int64_t byte = first_byte + 16 * chunk;
    const bool is_inside = byte >= 0 && byte < tensor_bytes && is_in(at.y + y, map.dims[1]) &&
                           is_in(at.z + z, map.dims[2]) && is_in(at.w + w, map.dims[3]);
    const uint64_t source = map.address + static_cast<uint64_t>(byte + (at.y + y) * map.strides[0] +
                                                                (at.z + z) * map.strides[1] +
                                                                (at.w + w) * map.strides[2]);
    const uint32_t linear = box + static_cast<uint32_t>(row * row_bytes + 16 * chunk);
    const uint32_t place = map.is_swizzled != 0 ? linear ^ ((linear >> 3) & 0x70u) : linear;
    body(SharedPtr<Bytes16>{place}, GlobalPtr<Bytes16>{reinterpret_cast<Bytes16*>(source)},
         is_inside);
    chunk += more_chunks;
    const int32_t carry = chunk >= chunks ? 1 : 0;
    chunk -= carry * chunks;
    row += more_rows + carry;
    y += more_rows + carry;
    while (y >= box_y) {
      y -= box_y;
      if (++z == box_z) {
        z = 0;
        ++w;
      }
    }
  }
}

// Loads a box of swizzled rows of 128 bytes, as operands have them: a lane takes the same chunk of
// every fourth row. One warp fills all stages, so a chunk costs it few instructions.
MOEJIT_DEVICE void load_operand_rows(uint32_t box, const PlainTensorMap& map, const BoxPlace& at) {
  constexpr int32_t kRowBytes = 128, kRowsAtOnce = 4;
  const int32_t lane = lane_index(), chunk = lane % 8, first = lane / 8;
  const int64_t byte = int64_t{at.x} * map.element_bytes + 16 * chunk;
  const bool is_inside = byte >= 0 && byte < map.dims[0] * map.element_bytes &&
                         is_in(at.z, map.dims[2]) && is_in(at.w, map.dims[3]);
  const uint32_t rows = is_inside ? static_cast<uint32_t>(map.dims[1]) : 0;
  const int64_t stride = map.strides[0];
  uint64_t source =
      map.address + static_cast<uint64_t>(byte + (at.y + first) * stride + at.z * map.strides[1] +
                                          at.w * map.strides[2]);
  uint32_t row = box + static_cast<uint32_t>(first * kRowBytes);
  uint32_t column = static_cast<uint32_t>((chunk ^ first) * 16);  // row 4 turns the highest bit
#pragma unroll 8
  for (int32_t i = first; i < map.box[1]; i += kRowsAtOnce) {
    const bool has_row = static_cast<uint32_t>(at.y + i) < rows;
    copy_operand_async_16({row + column}, {reinterpret_cast<const Bytes16*>(source)}, has_row);
    source += static_cast<uint64_t>(kRowsAtOnce * stride);
    row += kRowsAtOnce * kRowBytes;
    column ^= 0x40u;
  }
}

MOEJIT_DEVICE void load_box(uint32_t destination, const TensorMap& map, const BoxPlace& at) {
  const auto& plain = reinterpret_cast<const PlainTensorMap&>(map);
  const bool is_of_operand = plain.is_swizzled != 0 && destination % 1024 == 0 &&
                             plain.box[0] * plain.element_bytes == 128 &&
                             plain.box[2] * plain.box[3] == 1;
  if (is_of_operand) return load_operand_rows(destination, plain, at);
  for_each_chunk(destination, map, at,
                 [](SharedPtr<Bytes16> to, GlobalPtr<Bytes16> from, bool is_inside) {
                   copy_operand_async_16(to, {from.address}, is_inside);
                 });
}

MOEJIT_DEVICE void store_box(const TensorMap& map, uint32_t source, const BoxPlace& at) {
  for_each_chunk(source, map, at,
                 [](SharedPtr<Bytes16> from, GlobalPtr<Bytes16> to, bool is_inside) {
                   if (is_inside) store(to, load(from));
                 });
}

// Each element has one owner, so that a load and a store add as the hardware does.
MOEJIT_DEVICE void add_box(const TensorMap& map, uint32_t source, const BoxPlace& at) {
  for_each_chunk(
      source, map, at, [](SharedPtr<Bytes16> from, GlobalPtr<Bytes16> to, bool is_inside) {
        if (!is_inside) return;
        const Bytes16 added = load(from);
        Bytes16 sum = load(to);
#pragma unroll
        for (int32_t i = 0; i < 4; ++i)
          sum.word[i] = bits_of(add(float_from_bits(sum.word[i]), float_from_bits(added.word[i])));
        store(to, sum);
      });
}

template <CachePolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_2d(SharedPtr<T> destination, const TensorMap& map, Mbarrier,
                                  int32_t x, int32_t y) {
  load_box(destination.address, map, {x, y, 0, 0});
}
template <CachePolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_3d(SharedPtr<T> destination, const TensorMap& map, Mbarrier,
                                  int32_t x, int32_t y, int32_t z) {
  load_box(destination.address, map, {x, y, z, 0});
}
template <CachePolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_4d(SharedPtr<T> destination, const TensorMap& map, Mbarrier,
                                  int32_t x, int32_t y, int32_t z, int32_t w) {
  load_box(destination.address, map, {x, y, z, w});
}

MOEJIT_DEVICE void load_bulk(SharedPtr<Bytes16> destination, GlobalPtr<const Bytes16> source,
                             int32_t bytes, Mbarrier) {
  for (int32_t i = lane_index(); i < bytes / 16; i += 32)
    copy_async_16(destination + i, source + i, true);
}

template <typename T>
MOEJIT_DEVICE void store_tensor_2d(const TensorMap& map, SharedPtr<T> source, int32_t x,
                                   int32_t y) {
  store_box(map, source.address, {x, y, 0, 0});
}
template <CachePolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void store_tensor_3d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   int32_t z) {
  store_box(map, source.address, {x, y, z, 0});
}
template <CachePolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void store_tensor_4d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   int32_t z, int32_t w) {
  store_box(map, source.address, {x, y, z, w});
}
template <typename T>
MOEJIT_DEVICE void add_tensor_3d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t z) {
  add_box(map, source.address, {x, y, z, 0});
}
template <typename T>
MOEJIT_DEVICE void add_tensor_4d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t z, int32_t w) {
  add_box(map, source.address, {x, y, z, w});
}

// For clusters, which there are none of.
template <typename T>
MOEJIT_DEVICE void multicast_tensor_2d(SharedPtr<T>, const TensorMap&, Mbarrier, int32_t, int32_t,
                                       uint32_t);
template <typename T>
MOEJIT_DEVICE void multicast_tensor_3d(SharedPtr<T>, const TensorMap&, Mbarrier, int32_t, int32_t,
                                       int32_t, uint32_t);

}  // namespace moejit::device::ptx
