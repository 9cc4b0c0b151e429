// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/support/json_view.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace moejit::compiler {

// The limits of a layer description; docs/layer-description.md gives the reasons.

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxTokens = int64_t{1} << 20;
constexpr int64_t kMaxPermutedRows = INT32_MAX;  // rows are counted in int32 on the device
constexpr int32_t kBlockSize = 128;
constexpr std::size_t kMaxNameBytes = 128;
// Most values in a text, which bounds memory too. A description has less than a hundred. A
// configuration with a rule for each module of a large model has some hundred thousand.
constexpr std::size_t kMaxDescriptionValues = 10'000;
constexpr std::size_t kMaxConfigurationValues = 500'000;

constexpr IntRange kExpertsRange{.lowest = 1, .highest = kMaxExperts};
constexpr IntRange kScaleSharingRange{.lowest = 1, .highest = 2};
constexpr IntRange kSharedRange{.lowest = 1, .highest = 64};
// Most choices of a token that an exchange between ranks takes.
constexpr int64_t kMostChoices = 32;
// Margins that leave a normal number as the largest, and histories of at most 64 KiB elements a
// column.
constexpr IntRange kMarginRange{.lowest = 0, .highest = 64};
constexpr IntRange kAmaxHistoryRange{.lowest = 1, .highest = 65536};
constexpr IntRange kSplitsAlignmentRange{.lowest = 1, .highest = 4096};
constexpr IntRange kTokensRange{.lowest = 1, .highest = kMaxTokens};
// The range of `hidden` and `intermediate`: 16 e4m3 elements fill the 16 bytes of one vector
// access.
constexpr IntRange kWidthRange{.lowest = 16, .highest = 65536, .multiple_of = 16};

// Returns the range of a count of experts that cannot exceed the model's.
constexpr IntRange up_to_experts(int64_t experts) {
  return {.lowest = 1, .highest = experts, .bound_by = "experts"};
}

// Returns every key that a layer description may have, in the order in which to_json() writes them.
std::span<const std::string_view> layer_keys();

// Returns what travels between ranks if the description does not say. It is nothing if all experts
// are here, or if tokens have no codes of their own, else FP8 rows.
inline Dispatch default_dispatch(const Layer& layer) {
  const bool has_codes = has_scales(layer.recipe.tokens) && !has_expert_scale(layer.recipe.tokens);
  const bool sends_rows = layer.local_experts < layer.experts && has_codes &&
                          !is_cast_from_values(layer.recipe.wgrad_operands);
  return sends_rows ? Dispatch::kFp8 : Dispatch::kNone;
}

}  // namespace moejit::compiler
