// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_links.h"

#include "runtime/driver/driver_api.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

Result<bool> can_reach(const DriverApi& api, CUdevice from, CUdevice to) {
  if (from == to) return true;
  if (api.device_can_access_peer == nullptr) return false;
  int can_access = 0;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, device_can_access_peer, (&can_access, from, to));
  return can_access != 0;
}

// Returns the ordinals of the other GPUs that one reaches: "1, 2", or "none".
std::string peers_text(const std::vector<bool>& reached, std::size_t own) {
  std::string text;
  for (std::size_t to = 0; to < reached.size(); ++to)
    if (to != own && reached[to]) text += fmt::format("{}{}", text.empty() ? "" : ", ", to);
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<std::vector<bool>>> gpu_links() {
  MOEJIT_TRY_ASSIGN(const DriverApi* const api, driver_api());
  int count = 0;
  MOEJIT_TRY_DRIVER((*api), Stage::kLoad, device_get_count, (&count));
  std::vector<CUdevice> gpus(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal)
    MOEJIT_TRY_DRIVER((*api), Stage::kLoad, device_get,
                      (&gpus[static_cast<std::size_t>(ordinal)], ordinal));
  std::vector<std::vector<bool>> links;
  for (const CUdevice from : gpus) {
    std::vector<bool>& reached = links.emplace_back();
    for (const CUdevice to : gpus) {
      MOEJIT_TRY_ASSIGN(const bool reaches, can_reach(*api, from, to));
      reached.push_back(reaches);
    }
  }
  return links;
}

std::string links_text(const std::vector<std::vector<bool>>& links) {
  if (links.size() == 1) return "1 GPU, no peers";
  bool all = true;
  std::string text;
  for (std::size_t from = 0; from < links.size(); ++from) {
    for (const bool reaches : links[from]) all = all && reaches;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", from, peers_text(links[from], from));
  }
  return all ? fmt::format("all {} GPUs reach each other", links.size()) : text;
}

}  // namespace moejit::runtime
