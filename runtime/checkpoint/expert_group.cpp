// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/expert_group.h"

#include "compiler/support/json_document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

constexpr std::string_view kExperts = "experts.";
// Names of Granite's fused tensors, which have no `experts` in them.
constexpr std::array<std::string_view, 2> kFusedWithoutExperts = {"input_linear.weight",
                                                                  "output_linear.weight"};
// Prefix under which Qwen3-Next and others number the layers of multi-token prediction, again from
// 0.
constexpr std::string_view kMultiTokenPrediction = "mtp.";

std::optional<int64_t> number_from(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

// Returns where `word` begins in `name` as a whole word between dots.
size_t find_word(std::string_view name, std::string_view word) {
  size_t at = name.find(word);
  while (at != std::string_view::npos && at != 0 && name[at - 1] != '.')
    at = name.find(word, at + 1);
  return at;
}

// Returns how many letters of a name are the stem of its group; 0 if the name belongs to no expert.
size_t stem_length(std::string_view name) {
  if (const size_t at = find_word(name, kExperts); at != std::string_view::npos)
    return at + kExperts.size();
  for (const std::string_view part : kFusedWithoutExperts)
    if (name.ends_with(part) && name.size() > part.size() &&
        name[name.size() - part.size() - 1] == '.')
      return name.size() - part.size();
  return 0;
}

// Returns "model.layers.3.mlp" for "model.layers.3.mlp.experts." and for the forms that people
// write.
std::string prefix_of(std::string_view stem) {
  while (stem.ends_with('.')) stem.remove_suffix(1);
  constexpr std::string_view kWord = "experts";
  if (stem == kWord) return "";
  if (stem.ends_with(kWord) && stem[stem.size() - kWord.size() - 1] == '.')
    stem.remove_suffix(kWord.size() + 1);
  return std::string(stem);
}

// Finds the last number between dots: 3 in "model.layers.3.mlp".
std::optional<int64_t> layer_of(std::string_view prefix) {
  while (!prefix.empty()) {
    const size_t point = prefix.rfind('.');
    const size_t begin = point == std::string_view::npos ? 0 : point + 1;
    if (const auto number = number_from(prefix.substr(begin))) return number;
    prefix = prefix.substr(0, begin == 0 ? 0 : point);
  }
  return std::nullopt;
}

void add_tensor(ExpertGroup& group, std::string_view rest) {
  const size_t point = rest.find('.');
  const auto expert = number_from(rest.substr(0, point));
  if (!expert || point == std::string_view::npos) {
    group.fused.emplace(rest);
    return;
  }
  group.experts.insert(*expert);
  group.parts.emplace(rest.substr(point + 1));
}

// Sorts by number: layer 2 comes before layer 10.
std::vector<const ExpertGroup*> in_order(const std::vector<const ExpertGroup*>& groups) {
  std::vector<const ExpertGroup*> sorted = groups;
  std::ranges::stable_sort(sorted, {}, [](const ExpertGroup* g) { return g->layer.value_or(-1); });
  return sorted;
}

std::string prefixes_text(const std::vector<const ExpertGroup*>& groups) {
  constexpr size_t kShown = 3;
  const std::vector<const ExpertGroup*> sorted = in_order(groups);
  const auto name = [&](size_t i) {
    const std::string& prefix = sorted[i]->prefix;
    return prefix.empty() ? std::string("\"\"") : escape_for_message(prefix, 200);
  };
  std::string text;
  for (size_t i = 0; i < sorted.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + name(i);
  if (sorted.size() == kShown + 1) text += ", " + name(kShown);
  if (sorted.size() > kShown + 1)
    text += fmt::format(" ... {} ({} in all)", name(sorted.size() - 1), sorted.size());
  return text;
}

std::string with_missing_shard(std::string hint, const ShardSet& shards) {
  const std::string shard = shards.missing_shard();
  return shard.empty() ? hint : fmt::format("{}{}{}", hint, hint.empty() ? "" : "; ", shard);
}

tl::unexpected<Error> no_group(const ShardSet& shards, const std::string& what,
                               const std::vector<const ExpertGroup*>& groups) {
  std::string hint =
      "no tensor there is called ...experts...: is it the checkpoint of a "
      "Mixture-of-Experts model?";
  if (!groups.empty()) hint = fmt::format("experts there are under {}", prefixes_text(groups));
  return fail(Stage::kFile, ErrorCode::kMissingTensor,
              fmt::format("{}: {}", shards.description(), what), with_missing_shard(hint, shards));
}

}  // namespace

std::map<std::string, ExpertGroup> find_expert_groups(const ShardSet& shards) {
  std::map<std::string, ExpertGroup> groups;
  shards.for_each_name([&](const std::string& name) {
    const size_t length = stem_length(name);
    if (length == 0) return;
    ExpertGroup& group = groups[prefix_of(std::string_view(name).substr(0, length))];
    if (group.stem.empty()) {
      group.stem = name.substr(0, length);
      group.prefix = prefix_of(group.stem);
      group.layer = layer_of(group.prefix);
    }
    add_tensor(group, std::string_view(name).substr(length));
  });
  return groups;
}

Result<ExpertGroup> choose_expert_group(const ShardSet& shards, const CheckpointOptions& options) {
  const std::map<std::string, ExpertGroup> groups = find_expert_groups(shards);
  std::vector<const ExpertGroup*> all;
  for (const auto& [prefix, group] : groups) all.push_back(&group);
  if (options.prefix) {
    const std::string prefix = prefix_of(*options.prefix);
    if (const auto found = groups.find(prefix); found != groups.end()) return found->second;
    return no_group(
        shards, fmt::format("no experts are under the prefix {}", quote_for_message(prefix, 200)),
        all);
  }
  std::vector<const ExpertGroup*> fitting;
  for (const ExpertGroup* group : all)
    if (!options.layer_number || group->layer == options.layer_number) fitting.push_back(group);
  // If a layer of multi-token prediction has the same number as a decoder layer, takes the decoder
  // layer.
  const auto is_decoder = [](const ExpertGroup* g) {
    return !g->prefix.starts_with(kMultiTokenPrediction);
  };
  if (std::ranges::any_of(fitting, is_decoder)) std::erase_if(fitting, std::not_fn(is_decoder));
  if (fitting.size() == 1) return *fitting.front();
  if (fitting.empty())
    return no_group(shards,
                    options.layer_number
                        ? fmt::format("layer {} has no experts there", *options.layer_number)
                        : "no tensor is one of an expert",
                    all);
  if (options.layer_number)
    return fail(
        Stage::kFile, ErrorCode::kInvalidValue,
        fmt::format("{}: {} groups of experts have the layer number {}: {}", shards.description(),
                    fitting.size(), *options.layer_number, prefixes_text(fitting)),
        "say which with --prefix instead of --layer");
  return fail(Stage::kFile, ErrorCode::kInvalidValue,
              fmt::format("{}: {} layers have experts: {}", shards.description(), fitting.size(),
                          prefixes_text(fitting)),
              "say which with --layer N or --prefix");
}

std::string ranges_text(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto next = numbers.begin(); next != numbers.end();) {
    const int64_t first = *next;
    int64_t last = first;
    while (++next != numbers.end() && *next == last + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += first == last ? std::to_string(first) : fmt::format("{} to {}", first, last);
  }
  return text;
}

}  // namespace moejit::checkpoint
