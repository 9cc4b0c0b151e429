// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/recipe.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

enum class Pass { kForward, kBackward };
enum class Recompute { kNone, kMoeExpert };

// Element type of dw1 and dw2. What is bf16 is overwritten by every call: added to, it would be
// rounded each time.
enum class WgradDtype { kF32, kBf16 };

// Element types of topk_ids, and of topk_probs and dprobs.
enum class TopkIdsDtype { kI32, kI64 };
enum class TopkProbsDtype { kF32, kBf16 };

// What an expert id at or above local_experts is.
enum class ForeignExperts {
  kReport,  // a mistake, which the status word tells; the choice is not routed
  kIgnore,  // an expert of another rank, as -1 is
};

// What backward can compute, in the order in which lists have them.
enum class Gradient { kDx, kDprobs, kDw1, kDw2, kDb1, kDb2 };

// What travels between ranks before the experts see it. kNone: the tokens given to the layer are
// already those that the local experts serve, so quantize and permute_pad may be one kernel.
enum class Dispatch { kNone, kFp8 };

// How the rows of gate and up lie in w1, in dw1, and in the columns of what has both.
enum class GateUpLayout {
  kConcat,       // all of gate, then all of up
  kInterleaved,  // they alternate, gate first
};

// A Mixture-of-Experts layer as one rank sees it. docs/layer-description.md describes each field
// under the same name; parse_layer() guarantees the ranges stated there.
struct Layer {
  std::string name;
  int32_t experts = 0;         // of the whole model
  int32_t local_experts = 0;   // E: on this rank
  int32_t top_k = 0;           // K: experts a token is routed to
  int32_t hidden = 0;          // H: multiple of 16
  int32_t intermediate = 0;    // I: multiple of 16
  Activation activation = {};  // swiglu
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;
  bool biases = false;         // each expert adds b1 to h1 and b2 to its result
  std::string dtype = "bf16";  // of x, weights and y
  TopkIdsDtype topk_ids_dtype = TopkIdsDtype::kI32;
  TopkProbsDtype topk_probs_dtype = TopkProbsDtype::kF32;  // of dprobs too
  ForeignExperts foreign_experts = ForeignExperts::kReport;
  Recipe recipe = Recipe::kFp8Flow;
  int32_t block_size = 128;        // contraction elements of a scale block
  int32_t scale_sharing_k = 1;     // scale blocks that follow each other there and share a scale
  int32_t splits_alignment = 128;  // each expert's rows start at a multiple of this
  int64_t max_tokens = 0;          // largest T of one call
  int64_t max_permuted_rows = 0;   // P: rows after permute and pad that memory is planned for
  Dispatch dispatch = Dispatch::kNone;
  bool dispatch_calls = false;  // the host dispatches rows itself, between calls
  std::vector<Pass> passes = {Pass::kForward};
  std::vector<Gradient> gradients = {};  // that backward computes, ordered; empty: all there are
  bool backward_halves = false;          // backward may be called in two halves
  Recompute recompute = Recompute::kNone;
  WgradDtype wgrad_dtype = WgradDtype::kF32;
  bool fuse_activation = true;  // the activation may be part of the kernel that multiplies with w1
  bool fuse_transpose = true;   // backward may permute and transpose x and dy in one kernel
  // The activation's gradient may be transposed, with the activation, by the kernel that makes it.
  bool fuse_activation_transpose = true;

  bool operator==(const Layer&) const = default;
};

bool has_backward(const Layer& layer);

// Returns every gradient that the layer has, asked for or not: those of biases where it has biases.
std::vector<Gradient> all_gradients(const Layer& layer);
// Returns the gradients that backward computes, in their order; none without backward.
std::vector<Gradient> gradients_of(const Layer& layer);
bool computes(const Layer& layer, Gradient gradient);

// Whether backward calls may add to the gradients of weights, and of biases.
bool adds_gradients(const Layer& layer);

// Parts of I rows in w1, each with I columns of h1: gate and up, or up alone.
int32_t w1_sections(const Layer& layer);

// I': columns of each half, gate and up, of what is contracted over both: I, or rounded up to
// multiples of 128 where scale blocks may not lie in both halves. Zeros fill it up.
int32_t padded_intermediate(const Layer& layer);

// Returns what a sentence calls a layer: "the layer NAME", or "the layer" where it has no name.
std::string named_layer(const Layer& layer);

std::string_view to_string(Pass pass);
std::string_view to_string(Gradient gradient);  // the tensor's name: "dx", ...
std::string_view to_string(Recompute recompute);
std::string_view to_string(WgradDtype dtype);
std::string_view to_string(TopkIdsDtype dtype);
std::string_view to_string(TopkProbsDtype dtype);
std::string_view to_string(ForeignExperts foreign);
std::string_view to_string(Dispatch dispatch);
std::string_view to_string(GateUpLayout layout);

// The largest P that any routing can need: every token's K choices local, as many groups as can be
// padded to the alignment: [max_tokens * top_k + min(local_experts, max_tokens * top_k) *
// (splits_alignment - 1)], rounded down to a multiple of splits_alignment (all group starts are
// such multiples, and a group without rows takes none).
int64_t worst_case_permuted_rows(const Layer& layer);

// The layer as JSON text that parse_layer() reads back to an equal record; all fields written
// (`gradients` where there is a backward pass), stable order, ends with a newline.
std::string to_json(const Layer& layer);

}  // namespace moejit::compiler
