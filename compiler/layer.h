// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"
#include "compiler/recipe.h"
#include "compiler/router.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

enum class Pass { kForward, kBackward };
enum class Recompute { kNone, kMoeExpert };

// Element type of dw1 and dw2.
enum class WgradDtype { kF32, kBf16 };

// What a call gets.
enum class LayerInput {
  kTokens,   // tokens [T, H] and the experts of each, topk_ids [T, K]
  kGrouped,  // rows [T, H] in the order of experts, and how many each expert has
};

// Element types of topk_ids and tokens_per_expert, and of topk_probs and dprobs.
enum class IndexDtype { kI32, kI64 };
enum class TopkProbsDtype { kF32, kBf16 };

// The FP8 format of gradients, where a recipe has the choice.
enum class GradientFormat { kE5m2, kE4m3 };

// How delayed scaling makes one largest magnitude of a history.
enum class AmaxComputeAlgo {
  kMax,         // the largest of all steps
  kMostRecent,  // as in the last step
};

// How an expert id at or above local_experts is treated.
enum class ForeignExperts {
  kReport,  // as a mistake: the status word reports it, and the choice is not routed
  kIgnore,  // as an expert of another rank, like the id -1
};

// Gradients that backward can compute, in the order in which lists have them. Layers with a router
// have dlogits, others dprobs.
enum class Gradient { kDx, kDprobs, kDlogits, kDw1, kDw2, kDb1, kDb2 };

// Format of the rows that travel between ranks before the experts see them. kNone: the tokens given
// to the layer are already those that the local experts serve, so quantize and permute_pad may be
// one kernel.
enum class Dispatch { kNone, kFp8 };

// What goes home from a rank for a token that several of its experts served.
enum class Combine {
  kPartial,  // one row, the sum of the experts' rows, rounded to bf16
  kRows,     // the row of each expert
};

// How bytes get from a rank of a group to another one.
enum class Transport {
  kPeer,  // kernels write into the memory of the others, on one host
  kNccl,  // NCCL brings them, on any hosts
};

// The ranks of a group that share a layer's experts and exchange rows themselves.
struct ExpertParallel {
  int32_t ranks = 0;  // R; 0: the layer has one rank
  Combine combine = Combine::kPartial;
  Transport transport = Transport::kPeer;
  int32_t sms = 0;  // SMs that kernels of the exchange take, of transport kPeer; 0: all
  bool operator==(const ExpertParallel&) const = default;
};

// Experts that every token has beside those it is routed to. Each is as wide as the others.
struct SharedExperts {
  int32_t experts = 0;  // n; 0: the layer has none
  bool gate = false;    // whether a caller gives each token's probability of them; else it is 1
  bool operator==(const SharedExperts&) const = default;
};

// Order of the rows of gate and up in w1 and dw1, and of their columns in tensors that have both.
enum class GateUpLayout {
  kConcat,       // all of gate, then all of up
  kInterleaved,  // they alternate, gate first
  kSeparate,     // as kConcat, but w1_gate and w1_up take the place of w1, and so do gradients
};

// A Mixture-of-Experts layer as one rank sees it. docs/layer-description.md describes each field
// under the same name; parse_layer() guarantees the ranges stated there.
struct Layer {
  std::string name;
  int32_t experts = 0;         // of the whole model
  int32_t local_experts = 0;   // on this rank, without shared ones
  int32_t top_k = 0;           // K: experts a token is routed to
  SharedExperts shared = {};   // their weights follow the local experts' weights
  int32_t hidden = 0;          // H: multiple of 16
  int32_t intermediate = 0;    // I: multiple of 16
  Activation activation = {};  // swiglu
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;
  bool biases = false;         // whether each expert adds b1 to h1 and b2 to its result
  std::string dtype = "bf16";  // of x, weights and y
  // Grouped input: T counts rows, top_k is 1, local_experts is experts.
  LayerInput input = LayerInput::kTokens;
  IndexDtype tokens_per_expert_dtype = IndexDtype::kI32;  // of grouped input
  // How experts are chosen of logits; without it callers bring topk_ids and topk_probs.
  std::optional<RouterFormula> router = {};
  IndexDtype topk_ids_dtype = IndexDtype::kI32;
  TopkProbsDtype topk_probs_dtype = TopkProbsDtype::kF32;  // dtype of dprobs too
  ForeignExperts foreign_experts = ForeignExperts::kReport;
  Recipe recipe = Recipe::kFp8Flow;
  int32_t block_size = 128;     // contraction elements of a scale block
  int32_t scale_sharing_k = 1;  // neighboring scale blocks along the contraction that share a scale
  bool power_of_2_scales = false;  // whether scales that are quotients become powers of two
  int32_t margin =
      0;  // powers of two of headroom; this and the next two for recipes with a history
  int32_t amax_history_len = 1024;  // steps that scales follow from
  AmaxComputeAlgo amax_compute_algo = AmaxComputeAlgo::kMax;
  int32_t splits_alignment = 128;  // each expert's rows start at a multiple of this
  int64_t max_tokens = 0;          // largest T of one call
  int64_t max_permuted_rows = 0;   // P: rows after permute and pad that memory is planned for
  Dispatch dispatch = Dispatch::kNone;
  bool dispatch_calls = false;  // whether the host dispatches rows itself, between calls
  std::vector<Pass> passes = {Pass::kForward};
  std::vector<Gradient> gradients = {};  // computed by backward, ordered; empty: all there are
  bool backward_halves = false;          // whether backward may be called in two halves
  bool backward_linears = false;         // whether it may be called in two parts, the last for dw1
  // Whether backward casts the weights' columns itself: update_weights() casts rows alone.
  bool backward_quantizes_weights = false;
  bool weight_checks = false;  // whether update_weights() casts only what has changed
  Recompute recompute = Recompute::kNone;
  WgradDtype wgrad_dtype = WgradDtype::kF32;
  bool fuse_wgrad_accumulation = true;  // whether backward calls may add to gradients of weights
  bool fuse_activation = true;          // whether the kernel of fc1 may contain the activation
  bool fuse_transpose = true;  // whether backward may permute and transpose x and dy in one kernel
  // Whether the kernel that makes the activation's gradient may transpose it, along with the
  // activation.
  bool fuse_activation_transpose = true;
  // If it has ranks, topk_ids are experts of the whole model, local_experts is E of each rank, and
  // max_tokens counts a rank's own tokens.
  ExpertParallel expert_parallel = {};

  bool operator==(const Layer&) const = default;
};

bool has_backward(const Layer& layer);

// Returns the format of dy and dh1, a member of the recipe that the description may change.
GradientFormat gradient_format(const Layer& layer);

// Returns the format of packed weights, a member of the recipe that the description may change.
PackedFormat weight_format(const Layer& layer);

// Returns whether calls get rows in the order of experts.
bool is_grouped(const Layer& layer);

// Returns whether such rows stay at their places from x to y, since no group needs pad rows.
bool keeps_rows(const Layer& layer);

// Returns whether the layer runs on a group of ranks.
bool is_of_group(const Layer& layer);

// Returns whether a transport moves bytes between the ranks of a group: there are several, and they
// do not reach each other's memory.
bool uses_collectives(const Layer& layer);

// Returns whether the layer has shared experts.
bool has_shared(const Layer& layer);

// Returns E, the experts whose weights a rank holds: its local ones, then the shared ones.
int32_t held_experts(const Layer& layer);

// Returns the layer whose tokens choose the shared experts, too. They are n more experts on each
// rank, behind its local ones, and each token has n more choices. Ids are i32, probabilities f32. A
// layer without shared experts is returned as it is.
Layer with_shared_chosen(const Layer& layer);

// Returns every gradient that the layer has, requested or not: dlogits in place of dprobs with a
// router, db1 and db2 only with biases.
std::vector<Gradient> all_gradients(const Layer& layer);
// Returns the gradients that backward computes, in their order; none without backward.
std::vector<Gradient> gradients_of(const Layer& layer);
bool computes(const Layer& layer, Gradient gradient);

// Returns whether backward calls may add to such gradients of weights if a description says
// nothing.
bool fuses_wgrad_accumulation(WgradDtype dtype);

// Returns how many parts of I rows w1 has, each with I columns of h1: 2 for gate and up, 1 for up
// alone.
int32_t w1_sections(const Layer& layer);

// Returns whether gate and up have weights and gradients of their own.
bool has_separate_gate_up(const Layer& layer);

// Returns I', the columns of each half, gate and up, of operands that are contracted over both
// halves. It is I rounded up to a multiple of 128 if no scale block may lie in both halves. It is
// rounded up, too, if no tile may, because gate and up have weights and gradients of their own. It
// is I otherwise. Zeros fill up the columns between.
int32_t padded_intermediate(const Layer& layer);

// Returns the layer in which the caller brings what the router makes. It has topk_ids and
// topk_probs in the place of logits, and dprobs in the place of dlogits.
Layer without_router(const Layer& layer);

// Returns the name of a layer in sentences: "the layer NAME", or "the layer" if it has no name.
std::string named_layer(const Layer& layer);

std::string_view to_string(Pass pass);
std::string_view to_string(LayerInput input);
std::string_view to_string(Gradient gradient);  // the tensor's name: "dx", ...
std::string_view to_string(Recompute recompute);
std::string_view to_string(WgradDtype dtype);
std::string_view to_string(IndexDtype dtype);
std::string_view to_string(TopkProbsDtype dtype);
std::string_view to_string(GradientFormat format);
std::string_view to_string(AmaxComputeAlgo algorithm);
std::string_view to_string(ForeignExperts foreign);
std::string_view to_string(Dispatch dispatch);
std::string_view to_string(Combine combine);
std::string_view to_string(Transport transport);
std::string_view to_string(GateUpLayout layout);

// Return the element type of tensors.
DType dtype_of(IndexDtype dtype);
DType dtype_of(TopkProbsDtype dtype);

// Sets splits_alignment. P is rounded up to a multiple, and holds every routing if it did before.
void set_splits_alignment(Layer& layer, int32_t alignment);

// Returns the splits_alignment where the description says none. It is the least that recipe and
// passes take for grouped rows, and where experts have few rows, of which pad rows would be many.
// Else groups have whole tiles. (Measured on an H200: docs/performance/tried.md.)
int32_t usual_splits_alignment(const Layer& layer);

// Sets the passes. A usual splits_alignment becomes the usual one of the new passes, as if the
// description had said them.
void set_passes(Layer& layer, std::vector<Pass> passes);

// Returns the largest P that any routing can need. All K choices of every token are local then, and
// as many groups as possible are padded to the alignment. It is [max_tokens * top_k +
// min(local_experts, max_tokens * top_k) * (splits_alignment - 1)], rounded down to a multiple of
// splits_alignment. All group starts are such multiples, and a group without rows takes no rows. In
// a layer of a group the tokens of all ranks count: R * max_tokens. Each shared expert adds a group
// of the rank's own max_tokens rows.
int64_t worst_case_permuted_rows(const Layer& layer);

// Returns the layer as JSON text that parse_layer() reads back to an equal record. It has all
// fields in a stable order and ends with a newline. `gradients` is there only with a backward pass,
// choices of recipes only with a recipe that has them. `expert_parallel` is there only for a group,
// `shared` only with shared experts, `router` only with a router. Grouped input has `input` and
// `tokens_per_expert_dtype`, and no fields of topk_ids and topk_probs.
std::string to_json(const Layer& layer);
std::string to_json(const SharedExperts& shared);  // the field "shared"

// Returns to_json() without splits_alignment and max_permuted_rows. The parser chooses them by
// recipe, passes and max_tokens, which readers of the text may change.
std::string to_json_without_padding(const Layer& layer);

}  // namespace moejit::compiler
