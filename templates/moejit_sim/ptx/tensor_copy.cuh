// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/tensor_copy.cuh.

#include "moejit_device/core/tensor_map.cuh"
#include "moejit_device/ptx/mbarrier.cuh"

namespace moejit::device::ptx {

enum class CachePolicy : uint64_t {
  kNormal = 0x1000000000000000,
  kEvictFirst = 0x12f0000000000000,
  kEvictLast = 0x14f0000000000000,
};

MOEJIT_DEVICE void prefetch_tensor_map(const TensorMap& map, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->prefetch_tensor(m, &map, nullptr, 0, site);
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_2d(SharedPtr<T> destination, const TensorMap& map, Mbarrier barrier,
                                  int32_t x, int32_t y, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[2] = {x, y};
  m->calls->load_tensor(m, destination.address, &map, barrier.address, at, 2, 0, site);
}

MOEJIT_DEVICE void load_bulk(SharedPtr<Bytes16> destination, GlobalPtr<const Bytes16> source,
                             int32_t bytes, Mbarrier barrier, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->load_bulk(m, destination.address, source.address, static_cast<uint32_t>(bytes),
                      barrier.address, site);
}

template <typename T>
MOEJIT_DEVICE void multicast_tensor_2d(SharedPtr<T> destination, const TensorMap& map,
                                       Mbarrier barrier, int32_t x, int32_t y, uint32_t ctas,
                                       Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[2] = {x, y};
  m->calls->load_tensor(m, destination.address, &map, barrier.address, at, 2, ctas, site);
}

template <typename T>
MOEJIT_DEVICE void multicast_tensor_3d(SharedPtr<T> destination, const TensorMap& map,
                                       Mbarrier barrier, int32_t x, int32_t y, int32_t z,
                                       uint32_t ctas, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[3] = {x, y, z};
  m->calls->load_tensor(m, destination.address, &map, barrier.address, at, 3, ctas, site);
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_3d(SharedPtr<T> destination, const TensorMap& map, Mbarrier barrier,
                                  int32_t x, int32_t y, int32_t z, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[3] = {x, y, z};
  m->calls->load_tensor(m, destination.address, &map, barrier.address, at, 3, 0, site);
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void load_tensor_4d(SharedPtr<T> destination, const TensorMap& map, Mbarrier barrier,
                                  int32_t x, int32_t y, int32_t z, int32_t w,
                                  Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[4] = {x, y, z, w};
  m->calls->load_tensor(m, destination.address, &map, barrier.address, at, 4, 0, site);
}

template <typename T>
MOEJIT_DEVICE void store_tensor_2d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[2] = {x, y};
  m->calls->store_tensor(m, &map, source.address, at, 2, sim::TensorStoreKind::kWrite, site);
}
template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void store_tensor_3d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   int32_t z, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[3] = {x, y, z};
  m->calls->store_tensor(m, &map, source.address, at, 3, sim::TensorStoreKind::kWrite, site);
}
template <CachePolicy kPolicy = CachePolicy::kNormal, typename T>
MOEJIT_DEVICE void store_tensor_4d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                   int32_t z, int32_t w, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[4] = {x, y, z, w};
  m->calls->store_tensor(m, &map, source.address, at, 4, sim::TensorStoreKind::kWrite, site);
}
template <typename T>
MOEJIT_DEVICE void add_tensor_4d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t z, int32_t w, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[4] = {x, y, z, w};
  m->calls->store_tensor(m, &map, source.address, at, 4, sim::TensorStoreKind::kAddF32, site);
}
template <typename T>
MOEJIT_DEVICE void add_tensor_3d(const TensorMap& map, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t z, Site site = Site::here()) {
  Machine* m = machine();
  const int32_t at[3] = {x, y, z};
  m->calls->store_tensor(m, &map, source.address, at, 3, sim::TensorStoreKind::kAddF32, site);
}

MOEJIT_DEVICE void commit_tensor_stores() {
  Machine* m = machine();
  m->calls->commit_tensor_stores(m);
}

// Here a tensor store has written global memory as soon as it has read shared memory; a bulk store
// writes in wait_tensor_stores().
template <int32_t kPending>
MOEJIT_DEVICE void wait_tensor_stores_read() {
  static_assert(kPending >= 0, "number of groups");
  Machine* m = machine();
  m->calls->wait_tensor_stores(m, kPending);
}
template <int32_t kPending>
MOEJIT_DEVICE void wait_tensor_stores() {
  static_assert(kPending >= 0, "number of groups");
  Machine* m = machine();
  m->calls->wait_tensor_stores(m, kPending);
  m->calls->land_bulk_stores(m, kPending);
}

MOEJIT_DEVICE void fence_proxy_async_global() {
  Machine* m = machine();
  m->calls->fence_proxy_async_global(m);
}
MOEJIT_DEVICE void fence_proxy_async() {
  Machine* m = machine();
  m->calls->fence_proxy_async(m);
}

}  // namespace moejit::device::ptx
