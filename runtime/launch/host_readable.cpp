// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/host_readable.h"

#include "moejit_device/params/multi_cast_transpose_params.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <span>
#include <variant>

namespace moejit::runtime {
namespace {

using device::CastTransposeTensor;

void add(std::vector<MemoryRegion>& regions, std::string_view name, const void* address,
         int64_t bytes, bool is_written) {
  if (address == nullptr || bytes == 0) return;
  regions.push_back({.name = name, .address = address, .bytes = bytes, .writable = is_written});
}

}  // namespace

std::vector<MemoryRegion> listed_memory(const compiler::KernelPlan& kernel, const void* list) {
  const auto* const spec = std::get_if<compiler::MultiCastTransposeSpec>(&kernel.spec);
  if (spec == nullptr) return {};
  std::vector<MemoryRegion> regions;
  for (const CastTransposeTensor& tensor :
       std::span(static_cast<const CastTransposeTensor*>(list),
                 static_cast<std::size_t>(kernel.bounds.list_length))) {
    const int64_t elements = tensor.rows * tensor.columns;
    add(regions, "input", tensor.input, elements * size_bytes(spec->input), false);
    add(regions, "output", tensor.output, elements, true);
    add(regions, "output_colwise", tensor.output_colwise, elements, true);
    add(regions, "scale", tensor.scale, sizeof(float), false);
    add(regions, "amax", tensor.amax, sizeof(float), true);
    add(regions, "scale_inv", tensor.scale_inv, sizeof(float), true);
  }
  return regions;
}

Result<void> check_saved_tokens(const compiler::Plan& plan, const BoundTensors& bound) {
  const auto found = std::ranges::find(plan.tensors, std::string_view("saved_tokens"),
                                       &compiler::TensorPlan::name);
  if (found == plan.tensors.end()) return {};
  int64_t tokens = 0;  // T of the forward call
  std::memcpy(&tokens, bound.address[static_cast<std::size_t>(found - plan.tensors.begin())],
              sizeof(tokens));
  if (tokens == bound.dims.tokens) return {};
  if (tokens < 0 || tokens > plan.bounds.max_tokens)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the saved block has {} where a forward call leaves its number of "
                            "tokens, wanted {} as this backward call has",
                            tokens, bound.dims.tokens),
                "give the block that a forward call of this layer has filled");
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("the backward call has {} tokens, wanted {} as the forward call that "
                          "filled the saved block",
                          bound.dims.tokens, tokens),
              "give the tensors and the saved block of the same forward call");
}

}  // namespace moejit::runtime
