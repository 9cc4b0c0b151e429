// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/gemm_cases.h"

#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "compiler/support/json_view.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::GemmAccumulation;
using compiler::GemmScales;
using compiler::GradientOutput;
using compiler::GradientScales;
using measure::GemmCase;
using measure::GemmOperation;

constexpr std::array kRowGroupedKeys = std::to_array<std::string_view>(
    {"name", "operation", "groups", "rows_per_group", "ragged", "splits_alignment", "n", "k",
     "sections", "scales", "accumulation", "scale_sharing_k"});
constexpr std::array kContractionGroupedKeys =
    std::to_array<std::string_view>({"name", "operation", "groups", "columns_per_group", "ragged",
                                     "rows", "n", "scales", "output", "accumulation"});
constexpr std::array kOperations = {GemmOperation::kGroupedGemm,
                                    GemmOperation::kContractionGroupedGemm};
constexpr std::array kScales = {GemmScales::kRowBlock, GemmScales::kTensor, GemmScales::kRowColumn,
                                GemmScales::kNone};
constexpr std::array kAccumulations = {GemmAccumulation::kFp32, GemmAccumulation::kFast};
constexpr std::array kGradientScales = {GradientScales::kTile, GradientScales::kRow,
                                        GradientScales::kTensor, GradientScales::kRowColumn};
constexpr std::array kOutputs = {GradientOutput::kBf16, GradientOutput::kBf16Add,
                                 GradientOutput::kF32, GradientOutput::kF32Add};

constexpr int64_t kMostRows = INT32_MAX;  // the device counts rows and columns in int32
constexpr IntRange kGroupsRange{.lowest = 1, .highest = 4096};
constexpr IntRange kRowsRange{.lowest = 1, .highest = int64_t{1} << 20};
constexpr IntRange kAlignmentRange{.lowest = 1, .highest = 4096};
constexpr IntRange kSectionsRange{.lowest = 1, .highest = 16};
constexpr IntRange kDepthRange{.lowest = 16, .highest = 65536, .multiple_of = 16};
constexpr IntRange kSharingRange{.lowest = 1, .highest = 2};

// Returns the range of a width. Each section is a matrix of its own. Its width must be a multiple
// of 16, because a vector access of 16 bytes holds 16 e4m3 elements.
IntRange width_range(int32_t sections) {
  return {.lowest = int64_t{16} * sections,
          .highest = 262144 / (16 * sections) * (int64_t{16} * sections),
          .multiple_of = int64_t{16} * sections};
}

Result<int32_t> read_int_at(const JsonView& object, std::string_view key, const IntRange& range) {
  MOEJIT_TRY_ASSIGN(const JsonView view, object.at(key));
  MOEJIT_TRY_ASSIGN(const int64_t number, view.read_int(range));
  return static_cast<int32_t>(number);
}

Result<int32_t> read_int_at(const JsonView& object, std::string_view key, const IntRange& range,
                            int32_t default_value) {
  if (!object.find(key)) return default_value;
  return read_int_at(object, key, range);
}

Result<std::string> read_name(const JsonView& object) {
  MOEJIT_TRY_ASSIGN(const JsonView view, object.at("name"));
  MOEJIT_TRY_ASSIGN(std::string name, view.read_string());
  const bool is_word = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
  if (is_word && name.size() <= 64) return name;
  return view.fail(
      ErrorCode::kInvalidValue,
      fmt::format("got {}, wanted 1 to 64 lower-case letters, digits, _ - and .", view.got()));
}

// Returns a member with one of `values`, by the names that to_string() gives them.
template <typename Enum, std::size_t kCount>
Result<Enum> read_enum_at(const JsonView& object, std::string_view key,
                          const std::array<Enum, kCount>& values) {
  std::array<std::string_view, kCount> names;
  std::ranges::transform(values, names.begin(), [](Enum value) { return to_string(value); });
  MOEJIT_TRY_ASSIGN(const JsonView view, object.at(key));
  MOEJIT_TRY_ASSIGN(const std::size_t index, view.read_choice(names));
  return values[index];
}

// Returns what read_enum_at() returns, or the first value if the member is absent.
template <typename Enum, std::size_t kCount>
Result<Enum> read_choice_at(const JsonView& object, std::string_view key,
                            const std::array<Enum, kCount>& values) {
  if (!object.find(key)) return values.front();
  return read_enum_at(object, key, values);
}

template <typename Scales>
Result<GemmAccumulation> read_accumulation(const JsonView& object, Scales scales) {
  MOEJIT_TRY_ASSIGN(const GemmAccumulation accumulation,
                    read_choice_at(object, "accumulation", kAccumulations));
  const bool has_choice = scales == Scales::kTensor || scales == Scales::kRowColumn;
  if (has_choice || accumulation == GemmAccumulation::kFp32) return accumulation;
  return object.find("accumulation")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got \"{}\" with the scales {}, wanted \"fp32\"", to_string(accumulation),
                         to_string(scales)),
             "\"fast\" is for e4m3 whose scales are tensor or row_column");
}

Result<int32_t> read_scale_sharing(const JsonView& object, GemmScales scales) {
  MOEJIT_TRY_ASSIGN(const int32_t blocks, read_int_at(object, "scale_sharing_k", kSharingRange, 1));
  if (blocks == 1 || scales == GemmScales::kRowBlock) return blocks;
  return object.find("scale_sharing_k")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got {} with the scales {}, wanted 1", blocks, to_string(scales)),
             "blocks share their scales where scales are row_block");
}

// Returns what the groups divide, rows or columns.
std::string_view group_unit(const GemmCase& gemm) {
  return is_row_grouped(gemm) ? "rows" : "columns";
}

Result<void> check_most_rows(const JsonView& object, const GemmCase& gemm) {
  if (most_rows(gemm) <= kMostRows) return {};
  const std::string unit(group_unit(gemm));
  return object.find(unit + "_per_group")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got {} {} in each of {} groups, which may be {} with pad {}, wanted at "
                         "most {}",
                         group_size(gemm), unit, gemm.groups, most_rows(gemm), unit, kMostRows));
}

// Reads the fields of a grouped GEMM in this order, since earlier fields bound later ones.
Result<void> read_row_grouped(const JsonView& object, GemmCase& gemm) {
  MOEJIT_TRY_ASSIGN(gemm.rows_per_group, read_int_at(object, "rows_per_group", kRowsRange));
  MOEJIT_TRY_ASSIGN(gemm.splits_alignment,
                    read_int_at(object, "splits_alignment", kAlignmentRange, 128));
  MOEJIT_TRY(check_most_rows(object, gemm));
  MOEJIT_TRY_ASSIGN(gemm.sections, read_int_at(object, "sections", kSectionsRange, 1));
  MOEJIT_TRY_ASSIGN(gemm.n, read_int_at(object, "n", width_range(gemm.sections)));
  MOEJIT_TRY_ASSIGN(gemm.k, read_int_at(object, "k", kDepthRange));
  MOEJIT_TRY_ASSIGN(gemm.scales, read_choice_at(object, "scales", kScales));
  MOEJIT_TRY_ASSIGN(gemm.accumulation, read_accumulation(object, gemm.scales));
  MOEJIT_TRY_ASSIGN(gemm.scale_sharing_k, read_scale_sharing(object, gemm.scales));
  return {};
}

Result<void> read_contraction_grouped(const JsonView& object, GemmCase& gemm) {
  MOEJIT_TRY_ASSIGN(gemm.columns_per_group, read_int_at(object, "columns_per_group", kRowsRange));
  MOEJIT_TRY(check_most_rows(object, gemm));
  MOEJIT_TRY_ASSIGN(gemm.rows, read_int_at(object, "rows", width_range(1)));
  MOEJIT_TRY_ASSIGN(gemm.n, read_int_at(object, "n", width_range(1)));
  MOEJIT_TRY_ASSIGN(gemm.gradient_scales, read_choice_at(object, "scales", kGradientScales));
  MOEJIT_TRY_ASSIGN(gemm.output, read_enum_at(object, "output", kOutputs));
  MOEJIT_TRY_ASSIGN(gemm.accumulation, read_accumulation(object, gemm.gradient_scales));
  return {};
}

Result<GemmCase> read_case(const JsonView& object) {
  GemmCase gemm;
  MOEJIT_TRY_ASSIGN(gemm.operation, read_enum_at(object, "operation", kOperations));
  MOEJIT_TRY(object.check_keys(gemm_case_keys(gemm.operation)));
  MOEJIT_TRY_ASSIGN(gemm.name, read_name(object));
  MOEJIT_TRY_ASSIGN(gemm.groups, read_int_at(object, "groups", kGroupsRange));
  if (const auto ragged = object.find("ragged")) {
    MOEJIT_TRY_ASSIGN(gemm.is_ragged, ragged->read_bool());
  }
  MOEJIT_TRY(is_row_grouped(gemm) ? read_row_grouped(object, gemm)
                                  : read_contraction_grouped(object, gemm));
  return gemm;
}

}  // namespace

std::span<const std::string_view> gemm_case_keys(GemmOperation operation) {
  if (operation == GemmOperation::kGroupedGemm) return kRowGroupedKeys;
  return kContractionGroupedKeys;
}

Result<std::vector<GemmCase>> read_gemm_cases(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(path));
  return parse_gemm_cases(text, path);
}

Result<std::vector<GemmCase>> parse_gemm_cases(std::string_view json,
                                               std::string_view source_name) {
  constexpr std::array kRootKeys = std::to_array<std::string_view>({"gemms"});
  MOEJIT_TRY_ASSIGN(const JsonDocument document, parse_json(json, {.source_name = source_name}));
  const JsonView root(document);
  MOEJIT_TRY(root.check_keys(kRootKeys));
  MOEJIT_TRY_ASSIGN(const JsonView list, root.at("gemms"));
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> objects, list.read_array());
  std::vector<GemmCase> gemms;
  for (const JsonView& object : objects) {
    MOEJIT_TRY_ASSIGN(GemmCase gemm, read_case(object));
    if (std::ranges::find(gemms, gemm.name, &GemmCase::name) != gemms.end())
      return object.find("name")->fail(
          ErrorCode::kInvalidValue,
          fmt::format("got \"{}\" twice, wanted each name once", gemm.name));
    gemms.push_back(std::move(gemm));
  }
  return gemms;
}

}  // namespace moejit::cli
