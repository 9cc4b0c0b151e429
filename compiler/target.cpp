// SPDX-License-Identifier: Apache-2.0
#include "compiler/target.h"

#include "compiler/support/json_document.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kMeasured = "measured";
constexpr std::string_view kNeverRun = "compiled and simulated, never run";

constexpr TargetFeatures kAmpere{
    .has_wgmma = false, .has_bulk_copies = false, .has_fp8_conversions = false};
constexpr TargetFeatures kAda{.has_wgmma = false, .has_bulk_copies = false};
constexpr TargetFeatures kBlackwell{.has_wgmma = false};

// Shared memory of a large SM, and of the SMs of workstation GPUs.
constexpr int32_t kKib = 1024;
Target large(std::string arch, TargetFeatures features) {
  return {.arch = std::move(arch), .features = features};
}
Target small(std::string arch, TargetFeatures features) {
  return {.arch = std::move(arch),
          .shared_memory_bytes = 99 * kKib,
          .shared_memory_of_sm = 100 * kKib,
          .threads_of_sm = 1536,
          .features = features};
}

// Returns the architecture with the name that its target has.
Architecture named(Architecture known) {
  known.name = to_string(known.target);
  return known;
}

// Blackwell's names came with this NVRTC.
constexpr NvrtcVersion kNvrtcOfBlackwell{12, 9};

std::vector<Architecture> table() {
  Target sm_80 = large("sm_80", kAmpere);
  sm_80.shared_memory_bytes = 163 * kKib;
  sm_80.shared_memory_of_sm = 164 * kKib;
  return {
      named(
          {.target = sm_80, .capabilities = {{8, 0}}, .gpus = "A100, A30", .evidence = kNeverRun}),
      named({.target = small("sm_86", kAmpere),
             .capabilities = {{8, 6}},
             .gpus = "A40, A10, RTX 3090",
             .evidence = kNeverRun}),
      named({.target = small("sm_89", kAda),
             .capabilities = {{8, 9}},
             .gpus = "L40S, L4, RTX 4090",
             .evidence = kNeverRun}),
      named({.target = Target{},
             .capabilities = {{9, 0}},
             .gpus = "H100, H200, H20",
             .evidence = kMeasured}),
      named({.target = large("sm_100f", kBlackwell),
             .capabilities = {{10, 0}, {10, 3}},
             .gpus = "B200, GB200",
             .evidence = kNeverRun,
             .oldest_nvrtc = kNvrtcOfBlackwell}),
      named({.target = large("sm_103a", kBlackwell),
             .capabilities = {{10, 3}},
             .gpus = "B300, GB300",
             .evidence = kNeverRun,
             .oldest_nvrtc = kNvrtcOfBlackwell}),
      named({.target = small("sm_120f", kBlackwell),
             .capabilities = {{12, 0}, {12, 1}},
             .gpus = "RTX 5090, RTX PRO 6000",
             .evidence = kNeverRun,
             .oldest_nvrtc = kNvrtcOfBlackwell}),
      named({.target = small("sm_121a", kBlackwell),
             .capabilities = {{12, 1}},
             .gpus = "DGX Spark",
             .evidence = kNeverRun,
             .oldest_nvrtc = kNvrtcOfBlackwell}),
  };
}

std::string names_of_targets() {
  std::string names;
  for (const Architecture& known : architectures()) names += known.name + ", ";
  return names + "sim";
}

constexpr std::string_view kCuda = "cuda";

}  // namespace

std::span<const Architecture> architectures() {
  static const auto& all = *new std::vector<Architecture>(table());  // threads may outlive main()
  return all;
}

const Architecture* find_architecture(const Target& target) {
  const auto found = std::ranges::find_if(architectures(), [&](const Architecture& known) {
    return nvrtc_arch(known.target) == nvrtc_arch(target);
  });
  return found == architectures().end() ? nullptr : &*found;
}

const Architecture* find_architecture(ComputeCapability capability) {
  const auto found = std::ranges::find_if(architectures(), [&](const Architecture& known) {
    return known.capabilities.front() == capability;
  });
  return found == architectures().end() ? nullptr : &*found;
}

bool runs_on(const Target& target, ComputeCapability capability) {
  const Architecture* const known = find_architecture(target);
  return target.kind == TargetKind::kCuda && known != nullptr &&
         std::ranges::find(known->capabilities, capability) != known->capabilities.end();
}

std::string_view nvrtc_arch(const Target& target) {
  return std::string_view(target.arch).substr(0, target.arch.find('-'));
}

std::span<const std::string_view> header_overlays(const Target& target) {
  static constexpr std::array<std::string_view, 1> kOfSim = {"moejit_sim"};
  static constexpr std::array<std::string_view, 1> kOfAmpere = {"moejit_sm80"};
  if (target.kind == TargetKind::kSim) return kOfSim;
  if (!target.features.has_fp8_conversions) return kOfAmpere;
  return {};
}

Result<Target> parse_target(std::string_view name) {
  if (name == kCuda) return Target{};
  if (name == "sim") return Target{.kind = TargetKind::kSim, .arch = "host"};
  for (const Architecture& known : architectures())
    if (name == known.name) return known.target;
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("unknown target {}, wanted one of {}", quote_for_message(name),
                          names_of_targets()),
              "cuda is short for cuda:sm_90a, a Hopper GPU; sim is the simulator on the CPU");
}

std::string to_string(const Target& target) {
  return target.kind == TargetKind::kSim ? "sim" : fmt::format("{}:{}", kCuda, target.arch);
}

}  // namespace moejit::compiler
