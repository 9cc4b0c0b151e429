// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/simulated_ranks.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::bindings {

Result<std::unique_ptr<runtime::Transport>> SimulatedRanks::open_transport(
    const runtime::NcclId& id, int32_t rank) {
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = ends.try_emplace(id);
  if (is_new) found->second = group->open_transport();
  auto end = std::move(found->second[static_cast<std::size_t>(rank)]);
  if (end == nullptr)
    return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                fmt::format("rank {} has come with this id already, wanted each rank once", rank),
                "make an id for each group");
  if (std::ranges::none_of(found->second, [](const auto& left) { return left != nullptr; }))
    ends.erase(found);
  return end;
}

}  // namespace moejit::bindings
