// SPDX-License-Identifier: Apache-2.0
#pragma once

// Route and a chain that permutes rows in one kernel, for few choices: each CTA routes all of them
// (map/route_few.cuh) while its first rows are on their way, which do not depend on the routes. No
// CTA waits for another.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/stage/row_chain.cuh"
//   #include "moejit_device/stage/route_permute.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 2048;
//   ...
//   using Rows = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>,
//                         StorePermuted<kColumns, kTopK, kLocalExperts>, kThreads,
//                         kSegmentsInFlight>;
//   using Routing = Route<kLocalExperts, kTopK, kSplitsAlignment, kThreads / 32, kHasColwiseOffs,
//                         int32_t, kIgnoresForeign, kHistograms>;
//   using Kernel = RoutePermute<Routing, Rows, kMostChoices>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_..., RoutePermuteParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/route_few.cuh"
#include "moejit_device/params/route_permute_params.h"
#include "moejit_device/stage/destinations.cuh"

namespace moejit::device {

// What this CTA has routed itself, for store stages.
template <typename Routing>
struct RoutedHere {
  static constexpr bool kMayPad = Routing::kMayPad;

  MOEJIT_DEVICE static int32_t row_of(const RowChainParams&, int64_t choice) {
    return Routing::destination(choice);
  }
  template <int32_t kGroups>
  MOEJIT_DEVICE static typename Routing::Groups groups(const RowChainParams&) {
    return Routing::groups();
  }
  template <int32_t kGroups>
  MOEJIT_DEVICE static int32_t rows(const RowChainParams&) {
    return Routing::rows();
  }
};

template <typename Route, typename Rows, int32_t kMostChoices>
struct RoutePermute {
  using Routing = RouteFew<Route, kMostChoices>;
  using Chain = typename Rows::template With<RoutedHere<Routing>>;
  static constexpr int32_t kThreads = Chain::kThreads;
  static constexpr int32_t kCtasPerSm = Chain::kCtasPerSm;
  static constexpr int32_t kSharedBytes = Routing::kSharedBytes;
  static_assert(Routing::kThreads == kThreads, "both parts have all threads of a CTA");
  static_assert(Routing::kFirstSharedByte >= Chain::kSharedBytes, "histograms lie behind the rest");

  MOEJIT_DEVICE static void run(const RoutePermuteParams& params) {
    Chain::run_around(params.rows, [&] { Routing(params.route).place_all(); });
  }
};

}  // namespace moejit::device
