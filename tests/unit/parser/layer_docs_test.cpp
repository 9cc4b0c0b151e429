// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/parser/hugging_face_families.h"
#include "compiler/parser/layer_schema.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

namespace moejit::compiler {
namespace {

std::string read_page(const std::string& name) {
  std::ifstream file(std::string(MOEJIT_SOURCE_DIR) + "/docs/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

TEST(LayerDocs, ListEveryActivation) {
  const std::string page = read_page("layer-description.md");
  for (const std::string_view name : preset_names()) {
    EXPECT_TRUE(has(page, "\n| `" + std::string(name) + "` |"))
        << "docs/layer-description.md has no row for the activation " << name;
    EXPECT_TRUE(has(page, "`\"" + std::string(name) + "\"`"))
        << "docs/layer-description.md, row `activation`, does not list " << name;
  }
}

TEST(LayerDocs, DescribeEveryFieldInARowOfTheTable) {
  const std::string page = read_page("layer-description.md");
  for (const std::string_view key : layer_keys())
    EXPECT_TRUE(has(page, "\n| `" + std::string(key) + "` |"))
        << "docs/layer-description.md has no row for " << key;
}

TEST(LayerDocs, ListEveryModelFamily) {
  const std::string page = read_page("layer-description.md");
  for (const HuggingFaceFamily& family : hugging_face_families())
    EXPECT_TRUE(has(page, "`" + std::string(family.model_type) + "`"))
        << "docs/layer-description.md does not name the family " << family.model_type;
}

TEST(LayerDocs, ListEveryRecipe) {
  const std::string page = read_page("recipes.md");
  for (const Recipe& recipe : kRecipes)
    EXPECT_TRUE(has(page, "\n| `" + std::string(recipe.name) + "` |"))
        << "docs/recipes.md has no row for " << recipe.name;
}

TEST(LayerDocs, ShowAnExampleThatParses) {
  const std::string page = read_page("layer-description.md");
  const std::size_t start = page.find("```json\n");
  ASSERT_NE(start, std::string::npos);
  const std::size_t end = page.find("```", start + 8);
  const Result<Layer> layer = parse_layer(page.substr(start + 8, end - start - 8), "example");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_EQ(layer->local_experts, 32);
}

}  // namespace
}  // namespace moejit::compiler
