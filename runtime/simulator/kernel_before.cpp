// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/kernel_before.h"

#include "runtime/simulator/cta.h"

#include <fmt/core.h>
#include <string_view>

namespace moejit::runtime {

KernelBefore::KernelBefore(std::span<const MemoryRegion> regions) {
  for (const MemoryRegion& region : regions) {
    if (region.address == nullptr || region.bytes <= 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(region.address);
    regions_.push_back({.name = std::string(region.name),
                        .begin = begin,
                        .end = begin + static_cast<uintptr_t>(region.bytes),
                        .is_written = region.writable});
  }
}

std::optional<std::string> KernelBefore::refusal(uintptr_t address, uint64_t bytes,
                                                 const char* verb) const {
  const bool is_read = std::string_view(verb) == verb_of(sim::Access::kRead);
  for (const Region& region : regions_) {
    const bool meets = address < region.end && region.begin < address + bytes;
    if (!meets || (is_read && !region.is_written)) continue;
    return fmt::format(
        "{} {} bytes at byte {} of {}, which the kernel before {} and may not be done "
        "with: await_kernel_before is missing",
        verb, bytes, static_cast<int64_t>(address - region.begin), region.name,
        region.is_written ? "writes" : "reads");
  }
  return std::nullopt;
}

// Sync of launches that overlap: members of Cta.

void Cta::await_kernel_before(sim::Site /*site*/) {
  has_awaited_[static_cast<std::size_t>(thread())] = true;
  cta_has_awaited_[static_cast<std::size_t>(cta_of(thread()))] = true;
}

void Cta::start_kernel_behind(sim::Site site) {
  if (launch_->before != nullptr && !has_awaited_[static_cast<std::size_t>(thread())])
    report(site,
           "lets the kernel behind begin and has not called await_kernel_before: the kernel behind "
           "takes all kernels before this one for complete");
}

void Cta::check_kernel_before(uintptr_t address, uint64_t bytes, sim::Access kind, sim::Site site) {
  if (launch_->before == nullptr || has_awaited_[static_cast<std::size_t>(thread())]) return;
  if (auto refusal = launch_->before->refusal(address, bytes, verb_of(kind)))
    report(site, std::move(*refusal));
}

std::optional<std::string> Cta::describe_ended_without_waiting() const {
  for (int32_t cta = 0; launch_->before != nullptr && cta < launch_->cluster_ctas; ++cta)
    if (!cta_has_awaited_[static_cast<std::size_t>(cta)])
      return fmt::format(
          "kernel {}, CTA {}: ends, and no thread of it has called "
          "await_kernel_before: who waits for this kernel takes the kernel before "
          "for complete",
          launch_->kernel, first_cta_ + cta);
  return std::nullopt;
}

}  // namespace moejit::runtime
