// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernel_key.h"

#include "compiler/compiler.h"
#include "moejit_device/params/contraction_grouped_gemm_params.h"
#include "moejit_device/params/grouped_gemm_params.h"
#include "moejit_device/params/route_params.h"
#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/params/transpose_params.h"

#include <fmt/core.h>
#include <string_view>

namespace moejit::compiler {
namespace {

// Raised when the meaning of a field, or of what is stored under a key, changes.
constexpr int kSchema = 1;

// Raised when a kernel wants to be launched in another way although its source stays the same:
// order of parameters, meaning of the number of CTAs. Layouts of the parameter records are read by
// the kernels too, so their headers are part of the toolchain's fields; the sizes guard the host.
constexpr int kLaunchAbi = 1;

std::string launch_abi() {
  return fmt::format(
      "{}:route={},row_chain={},tile_chain={},grouped_gemm={},contraction_grouped_gemm={},"
      "transpose={}",
      kLaunchAbi, sizeof(device::RouteParams), sizeof(device::RowChainParams),
      sizeof(device::TileChainParams), sizeof(device::GroupedGemmParams),
      sizeof(device::ContractionGroupedGemmParams), sizeof(device::TransposeParams));
}

}  // namespace

Result<KernelKey> kernel_key(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const std::vector<std::string> toolchain, toolchain_identity(source));
  return kernel_key(source, toolchain);
}

KernelKey kernel_key(const KernelSource& source, std::span<const std::string> toolchain) {
  FieldHasher hasher;
  hasher.add("schema", kSchema)
      .add("artefact", "kernel")
      .add("target", to_string(source.target))
      .add("entry", source.entry)
      .add_digest_of("source", source.text)
      .add("launch_abi", launch_abi())
      .add("toolchain_fields", std::ssize(toolchain));
  for (const std::string& field : toolchain) {
    const std::string_view text = field;
    const size_t equals = text.find('=');
    const bool has_name = equals != std::string_view::npos;
    hasher.add(has_name ? text.substr(0, equals) : "toolchain",
               has_name ? text.substr(equals + 1) : text);
  }
  return {.digest = hasher.digest(), .fields = hasher.fields()};
}

}  // namespace moejit::compiler
