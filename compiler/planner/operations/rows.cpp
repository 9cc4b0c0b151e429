// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/rows.h"

#include "compiler/launch.h"
#include "compiler/planner/operation.h"
#include "compiler/planner/operations/scales.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

namespace {

constexpr std::string_view kColwiseOffsReason =
    "groups of columns start at multiples of 128 in wgrad's operands, groups of rows do not";

// Returns the warps of a CTA that has work for `useful` of them. Each warp has a histogram over the
// experts, and each CTA has two more.
int32_t warps_with_histograms(const Route& route, int64_t useful, const Target& target) {
  const int32_t fitting = target.shared_memory_bytes / (4 * route.local_experts) - 2;
  const int64_t most = std::clamp<int64_t>(useful, 1, 32);
  return static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, most));
}

RouteSpec route_spec(const Operation& operation, const Route& route, int32_t warps) {
  return {.local_experts = route.local_experts,
          .top_k = route.top_k,
          .splits_alignment = route.splits_alignment,
          .has_colwise_offs = find_write(operation, "colwise_offs") != nullptr,
          .warps = warps,
          .topk_ids = route.topk_ids,
          .ignores_foreign = route.ignores_foreign};
}

KernelPlan route_map(const Operation& operation, const Route& route, const KernelContext& context) {
  const int64_t steps = context.bounds.max_tokens * ((route.local_experts + 31) / 32);
  const bool has_colwise_offs = find_write(operation, "colwise_offs") != nullptr;
  KernelPlan kernel{
      .spec = RouteMapSpec{.local_experts = route.local_experts,
                           .top_k = route.top_k,
                           .splits_alignment = route.splits_alignment,
                           .has_colwise_offs = has_colwise_offs,
                           .warps = warps_with_histograms(route, (steps + 7) / 8, context.target)},
      .reasons = {"each CTA counts all of the map and places a part of it: one launch, no barrier "
                  "between CTAs, stable order",
                  "row_map [T, K] rather than [T, E]: what moves rows reads no expert that a token "
                  "does not have"},
  };
  kernel.arguments.push_back({"topk_ids", "routing_map"});  // the same pointer
  add_arguments(kernel, operation, {"counts", "offs", "row_map", "status", "colwise_offs"});
  if (has_colwise_offs) kernel.reasons.emplace_back(kColwiseOffsReason);
  return kernel;
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const Route& route,
                       const KernelContext& context) {
  if (find_read(operation, "routing_map") != nullptr) return route_map(operation, route, context);
  const int64_t ids = context.bounds.max_tokens * route.top_k;
  const int32_t warps = warps_with_histograms(route, (ids + 31) / 32, context.target);
  const bool has_colwise_offs = find_write(operation, "colwise_offs") != nullptr;
  KernelPlan kernel{
      .spec = route_spec(operation, route, warps),
      .reasons = {fmt::format(
          "each CTA counts all ids and places a part of them, {} warps at a time: one launch, no "
          "barrier between CTAs, stable order",
          warps)},
  };
  add_arguments(
      kernel, operation,
      {"topk_ids", "counts", "offs", "row_map", "status", "colwise_offs", "saved_tokens"});
  if (has_colwise_offs) kernel.reasons.emplace_back(kColwiseOffsReason);
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const SplitRows& groups, const KernelContext&) {
  const bool has_row_map = find_write(operation, "row_map") != nullptr;
  KernelPlan kernel{
      .spec = SplitRowsSpec{.local_experts = groups.local_experts,
                            .splits_alignment = groups.splits_alignment,
                            .has_row_map = has_row_map,
                            .has_colwise_offs = find_write(operation, "colwise_offs") != nullptr,
                            .warps = has_row_map ? 8 : 1,
                            .tokens_per_expert = groups.tokens_per_expert},
      .reasons = {has_row_map
                      ? "one warp adds up the experts' rows, and a CTA of each expert tells "
                        "where its rows go"
                      : "one warp adds up the experts' rows, which stay where they are"},
  };
  add_arguments(
      kernel, operation,
      {"tokens_per_expert", "counts", "offs", "row_map", "status", "colwise_offs", "saved_tokens"});
  return kernel;
}

namespace {

// Returns how many rows are requested from L2 at once if rows are permuted without quantization; 0:
// none. Measured: it pays if a token has 8 rows here, but not if it has one. It does not pay either
// if rows are quantized on the way, where twice as many bytes are read. Bursts of 2 to 4 MiB are
// better than smaller and larger ones.
int32_t rows_per_burst(const PermutePad& permute, int64_t row_bytes, int64_t max_tokens) {
  constexpr int64_t kBytes = int64_t{3} << 20, kWholeSteps = 16, kLeastRowsOfToken = 6;
  if (row_bytes % 16 != 0) return 0;  // L2 is asked for multiples of 16 bytes
  const int64_t rows = kBytes / row_bytes / kWholeSteps * kWholeSteps;
  const bool pays = permute.top_k * permute.local_experts >= kLeastRowsOfToken * permute.experts &&
                    max_tokens > 2 * rows;
  return pays ? static_cast<int32_t>(rows) : 0;
}

RowChainSpec permuting_spec(const Operation& operation, const PermutePad& permute) {
  const bool moves_probs = find_write(operation, "output_probs") != nullptr;
  return {.quantize = QuantizeStage::kKeep,
          .store = StoreStage::kPermuted,
          .columns = permute.columns,
          .local_experts = permute.local_experts,
          .top_k = permute.top_k,
          .moves_probs = moves_probs,
          .tells_tokens = find_write(operation, "row_tokens") != nullptr,
          // Without probabilities the kernel is the same for both types.
          .probs = moves_probs ? permute.probs : DType::kF32};
}

void add_permuted_arguments(KernelPlan& kernel, const Operation& operation) {
  add_arguments(kernel, operation,
                {"probs", "row_map", "counts", "offs", "output", "output_probs", "row_tokens",
                 "input", "expert_scales", "amax"});
}

KernelPlan permute_as_they_are(const Operation& operation, const PermutePad& permute,
                               const KernelContext& context) {
  const bool has_scales = !read_of(operation, "input").scale_inv.empty();
  RowChainSpec spec = permuting_spec(operation, permute);
  spec.load = permute.has_two_levels ? LoadStage::kTwoLevelRows
              : has_scales           ? LoadStage::kQuantizedRows
                                     : LoadStage::kRows;
  spec.rows_per_burst = rows_per_burst(permute, input_row_bytes(spec), context.bounds.max_tokens);
  KernelPlan kernel{
      .spec = spec,
      .reasons = {"rows are read once in token order and written to their destinations; pad rows "
                  "are written by the same launch"},
  };
  add_permuted_arguments(kernel, operation);
  return kernel;
}

KernelPlan quantize_and_permute(const Operation& operation, const PermutePad& permute) {
  RowChainSpec spec = permuting_spec(operation, permute);
  spec.quantize =
      quantize_stage_of_bf16(permute.quantize->format, permute.quantize->blocks_per_scale);
  spec.epsilon = permute.quantize->format.epsilon;
  const Port* const kept = find_write(operation, "kept_output");
  if (kept != nullptr) spec.store = StoreStage::kRowsAndPermuted;
  KernelPlan kernel{
      .spec = with_whole_rows(spec),
      .reasons = {"a row is quantized in registers and written to its destinations"},
  };
  add_permuted_arguments(kernel, operation);
  if (kept != nullptr) {
    kernel.arguments.push_back({"kept_output", kept->tensor});
    if (!kept->scale_inv.empty()) kernel.arguments.push_back({"kept_scale_inv", kept->scale_inv});
    kernel.reasons.push_back(fmt::format(
        "{} is written too because {}", kept->tensor,
        kept->is_for_caller ? "intermediates are kept" : "backward transposes its rows"));
  }
  return kernel;
}

KernelPlan cast_and_permute(const Operation& operation, const PermutePad& permute) {
  RowChainSpec spec = permuting_spec(operation, permute);
  spec.quantize = QuantizeStage::kExpert;
  spec.format = permute.quantize->format.dtype;
  spec.amax = permute.amax;
  KernelPlan kernel{.spec = spec,
                    .reasons = {"a row is cast for each of its destinations, with the scale of the "
                                "expert there"}};
  add_permuted_arguments(kernel, operation);
  return kernel;
}

// Returns the chain of rows without scales of experts.
KernelPlan rows_chain(const Operation& operation, const PermutePad& permute,
                      const KernelContext& context) {
  return permute.quantize ? quantize_and_permute(operation, permute)
                          : permute_as_they_are(operation, permute, context);
}

KernelPlan find_amax(const Operation& operation, const PermutePad& permute) {
  const bool reads_probs = find_read(operation, "probs") != nullptr;
  RowChainSpec spec = permuting_spec(operation, permute);
  spec.quantize = QuantizeStage::kAmax;
  spec.local_experts = 0;
  spec.moves_probs = reads_probs;
  spec.probs = reads_probs ? permute.probs : DType::kF32;
  KernelPlan kernel{.spec = spec, .reasons = {std::string(kAmaxReason)}};
  add_arguments(kernel, operation, {"probs", "row_map", "output", "input"});
  return kernel;
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const PermutePad& permute,
                       const KernelContext& context) {
  if (permute.finds_amax) return find_amax(operation, permute);
  if (permute.quantize && has_expert_scale(permute.quantize->format))
    return cast_and_permute(operation, permute);
  return rows_chain(operation, permute, context);
}

bool can_route_permute(const Operation& route, const Operation& permute, const Target& target) {
  constexpr int32_t kMostBytes = 27 * 1024;  // eight CTAs of an SM have them
  const auto& rows = *kind_of<PermutePad>(permute);
  const CallBounds bounds;
  const PlanOptions options;
  const auto chain =
      std::get<RowChainSpec>(rows_chain(permute, rows, {bounds, target, options}).spec);
  const RoutePermuteSpec spec{route_spec(route, *kind_of<Route>(route), chain.threads / 32), chain};
  return launch_shape(spec).shared_bytes <= kMostBytes;
}

Operation with_route(const Operation& permute, const Operation& route) {
  Operation joined = permute;
  joined.name = fmt::format("route_{}", permute.name);
  joined.kind = RoutePermute{*kind_of<Route>(route), *kind_of<PermutePad>(permute)};
  std::erase_if(joined.reads, [&](const Port& port) { return defines(route, port.tensor); });
  joined.reads.insert(joined.reads.begin(), route.reads.begin(), route.reads.end());
  joined.writes.insert(joined.writes.begin(), route.writes.begin(), route.writes.end());
  return joined;
}

template <>
KernelPlan make_kernel(const Operation& operation, const RoutePermute& kind,
                       const KernelContext& context) {
  KernelPlan kernel = rows_chain(operation, kind.permute, context);
  const auto chain = std::get<RowChainSpec>(kernel.spec);
  kernel.spec = RoutePermuteSpec{route_spec(operation, kind.route, chain.threads / 32), chain};
  add_arguments(kernel, operation, {"topk_ids", "status", "colwise_offs", "saved_tokens"});
  kernel.reasons.emplace_back(
      "each CTA routes all choices while its first rows are on their way: one launch less, no "
      "barrier between CTAs, stable order");
  return kernel;
}

Operation with_quantize(const Operation& permute, const Operation& quantize) {
  Operation joined = permute;
  joined.name = fmt::format("quantize_{}", permute.name);
  std::get<PermutePad>(joined.kind).quantize = std::get<QuantizeRows>(quantize.kind);
  *std::ranges::find(joined.reads, "input", &Port::role) = read_of(quantize, "input");
  Port kept = write_of(quantize, "output");
  kept.role = "kept_output";
  kept.is_optional = kept.is_intermediate = true;
  joined.writes.push_back(std::move(kept));
  return joined;
}

Operation without_kept_rows(const Operation& permute) {
  Operation alone = permute;
  std::erase_if(alone.writes, [](const Port& port) { return port.role == "kept_output"; });
  return alone;
}

Operation without_quantize(const Operation& permute) {
  Operation alone = permute;
  auto& kind = std::get<PermutePad>(alone.kind);
  if (!kind.quantize) return alone;
  kind.quantize.reset();
  alone.name = permute.phase == Phase::kBackward ? "permute_pad_grad" : "permute_pad";
  const Port& kept = write_of(permute, "kept_output");
  *std::ranges::find(alone.reads, "input", &Port::role) = {
      .role = "input", .tensor = kept.tensor, .scale_inv = kept.scale_inv};
  std::erase_if(alone.writes, [](const Port& port) { return port.role == "kept_output"; });
  return alone;
}

void narrow(Operation& operation, const PermutePad& permute) {
  if (find_write(operation, "kept_output") == nullptr) return;
  if (find_write(operation, "output") != nullptr || !permute.quantize) return;
  const Port rows = read_of(operation, "input");
  Port quantized = write_of(operation, "kept_output");
  quantized.role = "output";
  operation.name = fmt::format("quantize{}", operation.phase == Phase::kBackward ? "_dy" : "");
  operation.reads = {rows};
  operation.writes = {quantized};
  operation.kind = QuantizeRows(*permute.quantize);
}

namespace {

constexpr std::string_view kSumReason =
    "fp32 sum in descending row order: the same bits for any batch";

KernelPlan dprobs_kernel(const Operation& operation, const Unpermute& unpermute) {
  KernelPlan kernel{
      .spec =
          UnpermuteDprobsSpec{.top_k = unpermute.top_k,
                              .dprobs_columns = unpermute.dprobs_columns,
                              .adds_bias_dprobs = find_read(operation, "bias_dprobs") != nullptr,
                              .probs = unpermute.probs},
      .reasons = {unpermute.keeps_rows
                      ? "rows of dx stay where they are"
                      : "nobody asks for dx, beside whose rows they would be gathered"},
  };
  add_arguments(kernel, operation, {"row_map", "dprobs_blocks", "dprobs", "bias_dprobs"});
  return kernel;
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const Unpermute& unpermute,
                       const KernelContext&) {
  if (find_write(operation, "output") == nullptr) return dprobs_kernel(operation, unpermute);
  RowChainSpec spec{.load = LoadStage::kCombinedRows,
                    .quantize = QuantizeStage::kNone,
                    .columns = unpermute.columns,
                    .top_k = unpermute.top_k};
  KernelPlan kernel{.reasons = {std::string(kSumReason)}};
  if (find_write(operation, "dprobs") != nullptr) {
    spec.store = StoreStage::kRowsAndProbs;
    spec.dprobs_columns = unpermute.dprobs_columns;
    spec.adds_bias_dprobs = find_read(operation, "bias_dprobs") != nullptr;
    spec.probs = unpermute.probs;
    kernel.reasons.emplace_back("the gradients of a token's probabilities are gathered on the way");
  }
  kernel.spec = spec;
  add_arguments(kernel, operation,
                {"input", "row_map", "output", "dprobs_blocks", "dprobs", "bias_dprobs"});
  return kernel;
}

void narrow(Operation& operation, const Unpermute& unpermute) {
  const auto drop_reads = [&](std::string_view role) {
    std::erase_if(operation.reads, [&](const Port& port) { return port.role == role; });
  };
  const bool has_dprobs = find_write(operation, "dprobs") != nullptr;
  if (find_write(operation, "output") == nullptr) {
    operation.name = unpermute.keeps_rows ? "sum_dprobs" : "unpermute_dprobs";
    drop_reads("input");
  } else if (!has_dprobs && find_read(operation, "dprobs_blocks") != nullptr) {
    operation.name = "unpermute_dx";
    drop_reads("dprobs_blocks");
    drop_reads("bias_dprobs");
  }
}

}  // namespace moejit::compiler
