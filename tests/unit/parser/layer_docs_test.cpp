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

TEST(LayerDocs, DescribeEveryFieldInARowOfTheTable) {
  const std::string page = read_page("layer-description.md");
  for (const std::string_view key : layer_keys())
    EXPECT_NE(page.find("\n| `" + std::string(key) + "` |"), std::string::npos) << key;
}

TEST(LayerDocs, ListEveryModelFamily) {
  const std::string page = read_page("layer-description.md");
  for (const HuggingFaceFamily& family : hugging_face_families())
    EXPECT_NE(page.find("`" + std::string(family.model_type) + "`"), std::string::npos)
        << family.model_type;
}

TEST(LayerDocs, ListEveryRecipe) {
  const std::string page = read_page("recipes.md");
  for (const Recipe& recipe : kRecipes)
    EXPECT_NE(page.find("\n| `" + std::string(recipe.name) + "` |"), std::string::npos)
        << recipe.name;
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
