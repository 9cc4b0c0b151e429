// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tensor memory accelerator: one thread starts the copy of a box of a tensor between global and
// shared memory. The tensor map says where the tensor lies, how large box and tensor are and how
// the box is swizzled in shared memory; elements outside of the tensor are read as zeros and not
// written. Coordinates count elements, innermost dimension first, and may be negative or too large.
// (PTX ISA, "Data Movement: cp.async.bulk.tensor".)
//
// Shared memory that threads wrote with ordinary stores needs fence_proxy_async() by each of them,
// then a barrier, before a copy or a WGMMA reads it.

#include "moejit_device/core/tensor_map.cuh"
#include "moejit_device/ptx/mbarrier.cuh"

namespace moejit::device::ptx {

// What L2 does with the lines that a copy touches.
enum class CachePolicy : uint64_t {
  kNormal = 0x1000000000000000,
  kEvictFirst = 0x12f0000000000000,  // read once: weights of a decode step, outputs
  kEvictLast = 0x14f0000000000000,   // read again soon
};

// Fetches the map itself, so that the first copy does not wait for it.
MOEJIT_DEVICE void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts the copy of a box to `destination`, 128-byte aligned, 1024 for swizzled boxes. Its bytes,
// those outside of the tensor included, count on `barrier`.
template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_2d(SharedPtr<T> destination, const TensorMap& map, Mbarrier barrier,
                                  int32_t x, int32_t y) {
  if constexpr (kPolicy == CachePolicy::kNormal) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(destination.address),
        "l"(&map), "r"(barrier.address), "r"(x), "r"(y)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination.address),
        "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "l"(static_cast<uint64_t>(kPolicy))
        : "memory");
  }
}

// Starts the copy of bytes that follow each other, which takes no tensor map. They count on
// `barrier`. Their number and both addresses are multiples of 16.
MOEJIT_DEVICE void load_bulk(SharedPtr<Bytes16> destination, GlobalPtr<const Bytes16> source,
                             int32_t bytes, Mbarrier barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination.address),
      "l"(source.address), "r"(bytes), "r"(barrier.address)
      : "memory");
}

// Copies the box to this place in the shared memory of each CTA of the cluster whose bit is set in
// `ctas`. In each of them the bytes count on the barrier that lies at the place of `barrier`.
template <typename T>
MOEJIT_DEVICE void multicast_tensor_2d(SharedPtr<T> destination, const TensorMap& map,
                                       Mbarrier barrier, int32_t x, int32_t y, uint32_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination.address),
      "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "h"(static_cast<uint16_t>(ctas))
      : "memory");
}
template <typename T>
MOEJIT_DEVICE void multicast_tensor_3d(SharedPtr<T> destination, const TensorMap& map,
                                       Mbarrier barrier, int32_t x, int32_t y, int32_t z,
                                       uint32_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination.address),
      "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "r"(z), "h"(static_cast<uint16_t>(ctas))
      : "memory");
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_3d(SharedPtr<T> destination, const TensorMap& map, Mbarrier barrier,
                                  int32_t x, int32_t y, int32_t z) {
  if constexpr (kPolicy == CachePolicy::kNormal) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination.address),
        "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "r"(z)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination.address),
        "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "r"(z), "l"(static_cast<uint64_t>(kPolicy))
        : "memory");
  }
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_4d(SharedPtr<T> destination, const TensorMap& map, Mbarrier barrier,
                                  int32_t x, int32_t y, int32_t z, int32_t w) {
  if constexpr (kPolicy == CachePolicy::kNormal) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination.address),
        "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination.address),
        "l"(&map), "r"(barrier.address), "r"(x), "r"(y), "r"(z), "r"(w),
        "l"(static_cast<uint64_t>(kPolicy))
        : "memory");
  }
}

// Starts the copy of a box from shared to global memory, in this thread's open group.
template <typename T>
MOEJIT_DEVICE void store_tensor_2d(const TensorMap& map, SharedPtr<T> source, int32_t x,
                                   int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
          &map),
      "r"(source.address), "r"(x), "r"(y)
      : "memory");
}
template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void store_tensor_3d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   int32_t z) {
  if constexpr (kPolicy == CachePolicy::kNormal) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
            "l"(&map),
        "r"(source.address), "r"(x), "r"(y), "r"(z)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%2, %3, %4}], [%1], %5;" ::"l"(&map),
        "r"(source.address), "r"(x), "r"(y), "r"(z), "l"(static_cast<uint64_t>(kPolicy))
        : "memory");
  }
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void store_tensor_4d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   int32_t z, int32_t w) {
  if constexpr (kPolicy == CachePolicy::kNormal) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
        "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
        "r"(source.address), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%2, %3, %4, %5}], [%1], %6;" ::"l"(&map),
        "r"(source.address), "r"(x), "r"(y), "r"(z), "r"(w), "l"(static_cast<uint64_t>(kPolicy))
        : "memory");
  }
}

// Copies in the same way, but adds to what global memory holds (fp32), each element once.
template <typename T>
MOEJIT_DEVICE void add_tensor_3d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t z) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(source.address), "r"(x), "r"(y), "r"(z)
      : "memory");
}

template <typename T>
MOEJIT_DEVICE void add_tensor_4d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t z, int32_t w) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(source.address), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Closes the group of stores that this thread started since the last call.
MOEJIT_DEVICE void commit_tensor_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but this thread's last `kPending` groups have read their shared memory, which may
// then be written again.
template <int32_t kPending>
MOEJIT_DEVICE void wait_tensor_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all but the last `kPending` groups are complete: shared memory read, global written.
// Before a CTA ends its groups must at least have read.
template <int32_t kPending>
MOEJIT_DEVICE void wait_tensor_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Orders this thread's ordinary accesses to shared memory before later ones of tensor copies and
// WGMMA (the async proxy) that are started after a barrier.
MOEJIT_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Orders what this thread has read from flags in global memory before copies of global memory that
// it starts later.
MOEJIT_DEVICE void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace moejit::device::ptx
