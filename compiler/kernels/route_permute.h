// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/route.h"
#include "compiler/kernels/row_chain.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Most choices of a call in which each CTA that moves rows routes all of them. A thread loads
// its choices at once, 8 of 1024 in a CTA of 128 threads, and 448 CTAs read 4 KiB of ids each.
// With more choices ranks and ids take more time than a launch.
inline constexpr int32_t kMostChoicesToRoute = 1024;

// Does in one kernel what RouteSpec and a chain with a permuting store do. The warps of both are
// the warps of a CTA.
struct RoutePermuteSpec {
  RouteSpec route;
  RowChainSpec rows;
  bool operator==(const RoutePermuteSpec&) const = default;
};

std::string to_string(const RoutePermuteSpec& spec);

}  // namespace moejit::compiler
