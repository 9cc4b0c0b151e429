// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "cache/pack.h"
#include "cli/commands/cache_entries.h"
#include "compiler/plan.h"
#include "runtime/kernel_compilers.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// Where an engine would look for kernels.
struct KernelPlaces {
  std::unique_ptr<cache::KernelCache> folder;  // null: memory only
  std::vector<std::unique_ptr<cache::Pack>> packs;
  bool is_frozen = false;
};

// A kernel that a layer needs: where it is, or else what keeps its entry from use and which kernel
// is nearest.
struct WantedKernel {
  std::string operation;
  std::string entry;
  // The key under which the kernel is there, else the key that it would get first. There is none if
  // neither this machine nor any of the places has a compiler of the target.
  std::optional<Digest> key;
  std::string found_in;              // folder or pack; empty: nowhere
  bool is_in_pack = false;           // found_in is a pack
  runtime::CompilerFields compiler;  // that the key names
  bool is_own_compiler = false;      // the compiler is this machine's
  bool is_quarantined = false;
  std::string problem;                   // of an entry that cannot be used
  std::optional<Digest> nearest;         // the kernel of the folder whose key differs least
  bool is_nearest_of_operation = false;  // the nearest one is a kernel of the same operation
  std::vector<FieldDifference> differs;  // a: wanted, b: nearest
};

// Looks for a plan's kernels as an engine does (runtime::KernelStore), and changes nothing.
Result<std::vector<WantedKernel>> look_for(const compiler::Plan& plan, const KernelPlaces& places);

}  // namespace moejit::cli
