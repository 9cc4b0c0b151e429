// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

enum class TargetKind {
  kCuda,  // NVRTC makes a cubin for `arch`
  kSim,   // the host C++ compiler makes a shared object for the simulator
};

// What the instructions of an architecture can do that kernels ask for.
struct TargetFeatures {
  bool has_wgmma = true;  // multiplies tiles of shared memory by warpgroups
  // TMA and other bulk copies, mbarriers that count their bytes, clusters of CTAs, launches that
  // overlap.
  bool has_bulk_copies = true;
  bool has_fp8_conversions = true;  // between floats and e4m3 or e5m2
  bool operator==(const TargetFeatures&) const = default;
};

// How mma.sync adds products of f16 or bf16 (docs/recipes.md, "What tensor cores add").
struct MmaAddition {
  int32_t products = 16;  // that are added at once
  int32_t fraction = 25;  // bits behind the first one of the largest term
  bool operator==(const MmaAddition&) const = default;
};

// Most dynamic shared memory of a CTA on Hopper, for which tiles are chosen first.
inline constexpr int32_t kHopperSharedBytes = 232448;

// The platform that a kernel is compiled for. Planning and compiling need only this record, no
// device.
struct Target {
  TargetKind kind = TargetKind::kCuda;
  // "sm_90a"; "host" for the simulator. What follows a hyphen names a variant for tests, which the
  // GPUs of the architecture run, too.
  std::string arch = "sm_90a";
  // The most dynamic shared memory that a CTA may ask for.
  int32_t shared_memory_bytes = kHopperSharedBytes;
  int32_t shared_memory_of_sm = 233472;  // bytes that the CTAs of an SM share
  int32_t threads_of_sm = 2048;          // most resident threads
  int32_t max_threads_per_cta = 1024;
  TargetFeatures features;
  MmaAddition mma;

  bool operator==(const Target&) const = default;
};

// The version of a GPU's instructions, as the driver tells it: 9.0 of an H100.
struct ComputeCapability {
  int32_t major = 0, minor = 0;
  bool operator==(const ComputeCapability&) const = default;
};

struct NvrtcVersion {
  int32_t major = 12, minor = 0;
};

// The record holds what is known of an architecture. Sizes have their source in the CUDA C++
// Programming Guide, table "Technical Specifications per Compute Capability".
struct Architecture {
  Target target;
  std::string name;                             // of the target
  std::vector<ComputeCapability> capabilities;  // of the GPUs that run its cubins; the usual first
  std::string_view gpus;                        // "H100, H200, H20"
  // How far the kernels were shown to work: "measured", "bits shown", or "compiled and simulated,
  // never run". docs/targets.md says what each means.
  std::string_view evidence;
  NvrtcVersion oldest_nvrtc;  // that compiles for it
};

// Returns the target "sim", which simulates Hopper.
Target simulator_target();

// Returns all architectures that have a name, oldest first. "sm_90a" is the usual one.
std::span<const Architecture> architectures();

// Return the architecture of a target, or of GPUs with this capability; nullptr if there is none.
// Where cubins of several run on such a GPU, it is the one that is made for it alone.
const Architecture* find_architecture(const Target& target);
const Architecture* find_architecture(ComputeCapability capability);

// Returns whether a GPU of this capability runs kernels of a target.
bool runs_on(const Target& target, ComputeCapability capability);

// Returns the name that NVRTC has for a target's architecture: "sm_90a".
std::string_view nvrtc_arch(const Target& target);

// Returns whether grouped GEMMs unpack FP8 to f16: tensor cores that have no WGMMA get it so.
bool multiplies_in_f16(const Target& target);

// Returns whether warps of grouped GEMMs give registers to others (setmaxnreg). Small tiles need no
// more than threads start with.
bool trades_registers(const Target& target);

// Returns the folders, in order, whose files stand in for files of "moejit_device/ptx/" that the
// target has no instructions for. They lie below templates/.
std::vector<std::string_view> header_overlays(const Target& target);

// Convert "cuda:sm_90a", its short form "cuda", "sim", and "sim:sm_120f", which simulates another
// architecture. An unknown name is an error that lists the known ones.
Result<Target> parse_target(std::string_view name);
std::string to_string(const Target& target);

}  // namespace moejit::compiler
