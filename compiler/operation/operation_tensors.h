// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/operation/operation_draft.h"
#include "compiler/parser/layer_schema.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

inline constexpr IntRange kRowsRange{.lowest = 1, .highest = kMaxPermutedRows};
inline constexpr IntRange kColumnsRange{.lowest = 16, .highest = 131072, .multiple_of = 16};
inline constexpr std::array kGateUpLayouts = {GateUpLayout::kConcat, GateUpLayout::kInterleaved};

// Returns a range of rows in which each section is a matrix of its own, whose rows fill 16-byte
// vectors.
IntRange rows_of_sections(int64_t sections);

// Reads whether the rows of two sections, gate and up, alternate.
bool interleaves_sections(OperationDraft& draft, int32_t sections);

// Returns the recipes with kernels for whose formats `holds` is true, in the order of their table.
template <typename Holds>
std::vector<Recipe> recipes_where(Holds holds) {
  std::vector<Recipe> recipes;
  for (const Recipe& recipe : kRecipes)
    if (recipe.has_kernels && holds(recipe)) recipes.push_back(recipe);
  return recipes;
}

// Returns the recipes whose rows have scales that follow from each row alone.
inline std::vector<Recipe> row_recipes() {
  return recipes_where([](const Recipe& recipe) {
    return is_quantized(recipe.tokens) && !has_expert_factor(recipe.tokens);
  });
}

// Reads how many blocks of a row share a scale. It is one unless the recipe shares scales.
int32_t blocks_per_scale(OperationDraft& draft, const Recipe& recipe);

// Returns the size of a dimension as kernels count it.
inline int32_t int32_of(const Dim& dim) { return static_cast<int32_t>(dim.value); }

// Return dimensions with the symbols that the listing of a plan shows.
Dim fixed(int64_t size);
Dim starts_of(const Dim& experts);  // "E+1"
Dim blocks_of(const Dim& dim);      // blocks of 128 elements: "ceil(columns/128)"

// Returns rows of codes with the scales of a format, by default bf16, which has none. `rows` are
// all dimensions before the columns. Codes of E2M1 are packed in pairs.
ScaledTensor scaled_rows(std::string role, std::vector<Dim> rows, const Dim& columns,
                         const Format& format = {});

// Returns codes with a scale for 32 rows of a column, or for 16 with codes of E2M1. The latter are
// transposed and packed in pairs: [columns, rows / 2], with `rows` filled up to a multiple of 16.
// In bf16 there are no scales. `before` are the dimensions in front of these.
ScaledTensor scaled_columns(std::string role, std::vector<Dim> before, const Dim& rows,
                            const Dim& columns, const Format& format);

// The fields of operations on the rows of experts.
struct ExpertRows {
  Dim e, p, columns;

  // Returns the bounds of a call in which an expert's rows start at multiples of `alignment`.
  CallBounds bounds(int32_t alignment = 1) const;
  // Returns the blocks of 128 columns of an operand whose columns are the rows.
  Dim column_blocks() const;
};
ExpertRows expert_rows(OperationDraft& draft);

// The fields of operations on a matrix of each expert.
struct ExpertMatrices {
  Dim e, rows, columns;

  std::vector<Dim> shape() const { return {e, rows, columns}; }
  ColumnGroups groups() const;
  CallBounds bounds() const { return {.groups = int32_of(e)}; }
};
ExpertMatrices expert_matrices(OperationDraft& draft);

// Adds reads of the groups' sizes and starts, and of the starts of groups of columns.
void read_groups(OperationDraft& draft, const Dim& experts);
void read_column_groups(OperationDraft& draft, const Dim& experts);

}  // namespace moejit::compiler
