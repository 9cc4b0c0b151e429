// SPDX-License-Identifier: Apache-2.0
#include "compiler/target.h"

#include "compiler/support/json_document.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kMeasured = "measured";
constexpr std::string_view kNeverRun = "compiled and simulated, never run";
constexpr std::string_view kBitsShown = "bits shown";

constexpr TargetFeatures kAmpere{
    .has_wgmma = false, .has_bulk_copies = false, .has_fp8_conversions = false};
constexpr TargetFeatures kAda{.has_wgmma = false, .has_bulk_copies = false};
constexpr TargetFeatures kBlackwell{.has_wgmma = false};

// By the code of MMA-Sim (arXiv:2511.10909); no GPU of these was asked.
constexpr MmaAddition kMmaOfAmpere{.products = 8, .fraction = 24};

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
          .features = features,
          .mma = features.has_bulk_copies ? MmaAddition{} : kMmaOfAmpere};
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
  sm_80.mma = kMmaOfAmpere;
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
             .evidence = kBitsShown,
             .oldest_nvrtc = kNvrtcOfBlackwell}),
      named({.target = large("sm_103a", kBlackwell),
             .capabilities = {{10, 3}},
             .gpus = "B300, GB300",
             .evidence = kBitsShown,
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

constexpr std::string_view kCuda = "cuda", kSim = "sim";
constexpr std::string_view kHost = "host";  // the architecture of sim, which simulates sm_90a

// Hopper's GPUs, with the kernels of those that lack instructions: for tests.
std::vector<Target> test_targets() {
  return {{.arch = "sm_90a-mma", .features = kBlackwell},
          {.arch = "sm_90a-cp-async", .features = kAda}};
}

std::string names_of_targets() {
  std::string names;
  for (const Architecture& known : architectures()) names += known.name + ", ";
  for (const Architecture& known : architectures())
    if (!known.target.features.has_wgmma) names += fmt::format("sim:{}, ", known.target.arch);
  return names + "sim";
}

}  // namespace

Target simulator_target() { return {.kind = TargetKind::kSim, .arch = std::string(kHost)}; }

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

bool multiplies_in_f16(const Target& target) { return !target.features.has_wgmma; }

bool trades_registers(const Target& target) {
  return target.features.has_bulk_copies && target.shared_memory_bytes >= kHopperSharedBytes;
}

std::vector<std::string_view> header_overlays(const Target& target) {
  std::vector<std::string_view> folders;
  const auto& [has_wgmma, has_bulk_copies, has_fp8_conversions] = target.features;
  if (!has_wgmma) {
    if (!trades_registers(target)) folders.emplace_back("moejit_sm120");
    folders.emplace_back("moejit_mma");
  }
  if (!has_bulk_copies) folders.emplace_back("moejit_cp_async");
  // The simulator has its own version of what is written in instructions of GPUs.
  if (target.kind == TargetKind::kSim) {
    folders.emplace_back("moejit_sim");
    return folders;
  }
  if (!has_bulk_copies) folders.emplace_back("moejit_ampere");
  if (!has_fp8_conversions) folders.emplace_back("moejit_sm80");
  return folders;
}

Result<Target> parse_target(std::string_view name) {
  if (name == kCuda) return Target{};
  if (name == kSim) return simulator_target();
  for (const Architecture& known : architectures()) {
    if (name == known.name) return known.target;
    if (name == fmt::format("{}:{}", kSim, known.target.arch) && !known.target.features.has_wgmma) {
      Target simulated = known.target;
      simulated.kind = TargetKind::kSim;
      return simulated;
    }
  }
  for (const Target& tested : test_targets())
    if (name == to_string(tested)) return tested;
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("unknown target {}, wanted one of {}", quote_for_message(name),
                          names_of_targets()),
              "cuda is short for cuda:sm_90a, a Hopper GPU; sim is the simulator on the CPU");
}

std::string to_string(const Target& target) {
  if (target.kind == TargetKind::kCuda) return fmt::format("{}:{}", kCuda, target.arch);
  return target.arch == kHost ? std::string(kSim) : fmt::format("{}:{}", kSim, target.arch);
}

}  // namespace moejit::compiler
