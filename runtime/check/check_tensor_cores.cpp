// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_tensor_cores.h"

#include "runtime/check/tensor_core_questions.h"
#include "runtime/check/tensor_core_rule.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace moejit::check {
namespace {

using device::ProductFormats;
using reference::TensorCoreNumbers;

constexpr std::array kFormats = {ProductFormats::kE4m3, ProductFormats::kE5m2E4m3,
                                 ProductFormats::kE4m3E5m2, ProductFormats::kBf16};

TensorCoreNumbers numbers(const std::vector<uint8_t>& bytes, bool is_e5m2, bool is_bf16,
                          const reference::TensorCoreRule& rule) {
  if (!is_bf16)
    return {bytes, is_e5m2 ? reference::Fp8Format::kE5m2 : reference::Fp8Format::kE4m3, rule};
  std::vector<uint16_t> words(bytes.size() / 2);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return TensorCoreNumbers(words, rule);
}

// Returns how many sums differ from what the rule gives.
int64_t count_differing(const measure::TensorCoreProblems& problems, const std::vector<float>& sums,
                        const reference::TensorCoreRule& rule) {
  const bool is_bf16 = problems.formats == ProductFormats::kBf16;
  const auto a = numbers(problems.a, problems.formats == ProductFormats::kE5m2E4m3, is_bf16, rule);
  const auto b = numbers(problems.b, problems.formats == ProductFormats::kE4m3E5m2, is_bf16, rule);
  const int64_t depth = device::kSumRowBytes / (is_bf16 ? 2 : 1);
  int64_t differing = 0;
  for (int64_t i = 0; i < std::ssize(sums); ++i) {
    const int64_t row = i / device::kSumColumns;
    const int64_t column = row / device::kSumRows * device::kSumColumns + i % device::kSumColumns;
    const float wanted = reference::tensor_core_chain(a, row * depth, b, column * depth, depth);
    differing += std::bit_cast<uint32_t>(sums[static_cast<std::size_t>(i)]) !=
                         std::bit_cast<uint32_t>(wanted)
                     ? 1
                     : 0;
  }
  return differing;
}

}  // namespace

std::vector<AdditionRule> addition_rules(const compiler::Target& target) {
  std::vector<AdditionRule> rules = {{compiler::to_string(target), tensor_core_rule(target)}};
  for (const compiler::Architecture& known : compiler::architectures()) {
    const reference::TensorCoreRule rule = tensor_core_rule(known.target);
    const bool is_known = std::ranges::find(rules, rule, &AdditionRule::rule) != rules.end();
    if (!is_known) rules.push_back({known.name, rule});
  }
  return rules;
}

Result<std::vector<TensorCoreCheck>> check_tensor_cores(const std::vector<AdditionRule>& rules,
                                                        int64_t problems, runtime::Engine& engine,
                                                        runtime::Device& device) {
  std::vector<TensorCoreCheck> checks;
  for (const ProductFormats formats : kFormats) {
    for (const TensorCoreQuestion& question : tensor_core_questions(formats, problems)) {
      MOEJIT_TRY_ASSIGN(const std::vector<float> sums,
                        measure::tensor_core_sums(question.problems, engine, device));
      TensorCoreCheck check{
          .formats = formats, .question = question.name, .sums = std::ssize(sums)};
      for (const AdditionRule& rule : rules)
        check.differing.push_back(count_differing(question.problems, sums, rule.rule));
      checks.push_back(std::move(check));
    }
  }
  return checks;
}

std::string_view formats_text(ProductFormats formats) {
  switch (formats) {
    case ProductFormats::kE4m3: return "e4m3 x e4m3";
    case ProductFormats::kE5m2E4m3: return "e5m2 x e4m3";
    case ProductFormats::kE4m3E5m2: return "e4m3 x e5m2";
    case ProductFormats::kBf16: return "bf16 x bf16";
  }
  return {};
}

}  // namespace moejit::check
