// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/moejit_sim/machine.h"

#include <fmt/core.h>
#include <string_view>

// Prints a place as "moejit_device/stage/row_chain.cuh:88".
template <>
struct fmt::formatter<moejit::sim::Site> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }

  template <typename Context>
  auto format(const moejit::sim::Site& site, Context& context) const {
    std::string_view file = site.file();
    if (file.starts_with("./")) file.remove_prefix(2);
    return fmt::format_to(context.out(), "{}:{}", file, site.line());
  }
};
