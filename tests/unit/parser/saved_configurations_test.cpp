// SPDX-License-Identifier: Apache-2.0
// Configurations as the transformers library saves them (tests/fixtures/hugging_face), all that
// have experts. Expected is what the library's own modules are: sizes of their parameters, and
// values of their activation. What no module tells is in the tables below, written from the
// library's modeling code.
#include "compiler/compiler.h"
#include "compiler/parser/hugging_face_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>

namespace moejit::compiler {
namespace {

constexpr std::array kPoints = std::to_array<std::array<double, 2>>(
    {{0.5, -1.25}, {-3.0, 2.0}, {12.0, -30.0}, {1.5, 40.0}});  // of expert_modules.py
// Modules compute in double, but for a few that round to fp32 once or twice: 2^-24 each, and twice
// that for functions. Formulas are good to double.
constexpr double kTolerance = 4 * 0x1p-24;

// "Class variant rest" by "Class variant".
std::map<std::string, std::string> read_lines(const std::string& name) {
  std::ifstream file(std::string(MOEJIT_SOURCE_DIR) + "/tests/fixtures/hugging_face/" + name);
  EXPECT_TRUE(file) << name;
  std::map<std::string, std::string> lines;
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line.substr(0, 13), "transformers ");
  while (std::getline(file, line)) {
    const std::size_t end = line.find(' ', line.find(' ') + 1);
    lines[line.substr(0, end)] = line.substr(end + 1);
  }
  return lines;
}

// What a line of experts.txt says.
struct Experts {
  int32_t experts = 0;
  int32_t top_k = 0;  // 0: a constant of the router's code
  int32_t hidden = 0;
  int32_t intermediate = 0;
  std::string gate, layout, biases;
  std::array<double, kPoints.size()> values{};
};

Experts read_experts(const std::string& line) {
  Experts read;
  std::istringstream words(line);
  words >> read.experts >> read.top_k >> read.hidden >> read.intermediate >> read.gate >>
      read.layout >> read.biases;
  for (double& value : read.values) words >> value;
  EXPECT_TRUE(words) << line;
  return read;
}

// Configurations that give no description, and what the error says of them.
const std::map<std::string, std::string> kRefused = {
    // Sizes that a layer cannot have, and figures that a class leaves open.
    {"DeepseekOcr2TextConfig default", "$.num_experts_per_tok: got null"},
    {"DeepseekV2Config default", "$.num_experts_per_tok: got null"},
    {"DiffusionGemmaTextConfig default", "$.num_experts: got null"},
    {"Dots1Config default", "$.n_routed_experts: got null"},
    {"NemotronHConfig default", "$.moe_intermediate_size: got 7688, wanted a multiple of 16"},
    {"NemotronH_Omni_Reasoning_V3_Config small",
     "$.text_config.moe_intermediate_size: got 7688, wanted a multiple of 16"},
    // Dense ones.
    {"DogeConfig default", "$.is_moe: got false, a model without experts"},
    {"Gemma4TextConfig default", "$.enable_moe_block: got false, a model without experts"},
    // Llama4TextMoe multiplies hidden states before the experts.
    {"Llama4Config small", "multiply the input of 3 experts"},
    {"Llama4TextConfig small", "multiply the input of 3 experts"},
    // No description says what their experts do.
    {"DogeConfig small", "$.model_type: got doge, which a layer description cannot express"},
    {"MuseSparkConfig small",
     "$.text_config.model_type: got muse_spark, which a layer description cannot express"},
    {"MuseSparkTextConfig default", "got muse_spark, which a layer description cannot express"},
    {"MuseSparkTextConfig small", "got muse_spark, which a layer description cannot express"},
    {"VitPoseConfig small", "got vitpose_backbone, which a layer description cannot express"},
    {"VitPoseBackboneConfig default",
     "got vitpose_backbone, which a layer description cannot express"},
    {"VitPoseBackboneConfig small",
     "got vitpose_backbone, which a layer description cannot express"},
};

// NllbMoeTop2Router, SwitchTransformersTop1Router.
int32_t constant_top_k(const std::string& name) { return name.starts_with("Nllb") ? 2 : 1; }

void expect_layer(const std::string& name, const HuggingFaceLayer& made, const Experts& expected) {
  const Layer& layer = made.layer;
  EXPECT_EQ(layer.experts, expected.experts) << name;
  EXPECT_EQ(layer.top_k, expected.top_k > 0 ? expected.top_k : constant_top_k(name)) << name;
  EXPECT_EQ(layer.hidden, expected.hidden) << name;
  EXPECT_EQ(layer.intermediate, expected.intermediate) << name;
  EXPECT_EQ(has_gate(layer.activation), expected.gate == "gated") << name;
  EXPECT_EQ(to_string(layer.gate_up_layout), expected.layout) << name;
  EXPECT_EQ(layer.biases, expected.biases == "biases") << name;
  for (std::size_t i = 0; i < kPoints.size(); ++i) {
    const Values at = {{"gate", kPoints[i][0]}, {"up", kPoints[i][1]}};
    EXPECT_NEAR(evaluate(layer.activation.formula, at), expected.values[i],
                kTolerance * std::abs(expected.values[i]))
        << name << ": " << to_string(layer.activation) << " at point " << i;
  }
  const Result<Layer> read = parse_layer(to_json(layer), name);
  ASSERT_TRUE(read) << name << ": " << read.error().message;
  EXPECT_EQ(*read, layer) << name;
}

bool is_unknown(const HuggingFaceLayer& made) {
  return std::ranges::any_of(made.notes, [](const std::string& note) {
    return note.find("is not known") != std::string::npos;
  });
}

TEST(SavedConfigurations, GiveTheLayerOfTheLibrarysModules) {
  const std::map<std::string, std::string> experts = read_lines("experts.txt");
  std::size_t described = 0;
  for (const auto& [name, config] : read_lines("configurations.txt")) {
    const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, name, {});
    if (kRefused.contains(name)) continue;
    ASSERT_TRUE(made) << name << ": " << made.error().message;
    ASSERT_TRUE(experts.contains(name)) << name;
    expect_layer(name, *made, read_experts(experts.at(name)));
    // Saved alone, which no model is, this one has no model_type.
    EXPECT_EQ(is_unknown(*made), name.starts_with("DbrxFFNConfig")) << name;
    ++described;
  }
  EXPECT_GE(described, 180u);
}

TEST(SavedConfigurations, AreRefusedWithASentenceAndAWayOut) {
  const std::map<std::string, std::string> configurations = read_lines("configurations.txt");
  for (const auto& [name, sentence] : kRefused) {
    ASSERT_TRUE(configurations.contains(name)) << name;
    const Result<HuggingFaceLayer> made =
        layer_from_hugging_face(configurations.at(name), name, {});
    ASSERT_FALSE(made) << name;
    EXPECT_NE(made.error().message.find(sentence), std::string::npos) << made.error().message;
    EXPECT_FALSE(made.error().hint.empty()) << name;
  }
}

// A note of a configuration, for parts of models that modules of experts do not show.
struct Note {
  std::string name;
  std::string text;
};
const Note kNotes[] = {
    {"Llama4TextConfig default", "scale x by the caller"},
    {"BeamConfig small", "routed_scaling_factor = 2.5: multiply topk_probs"},
    {"HYV3Config small", "router_scaling_factor = 2.826: multiply topk_probs"},
    {"InklingTextConfig small", "route_scale = 8.0: multiply topk_probs"},
    {"LongcatFlashConfig small", "zero_expert_num = 256: "},
    {"NllbMoeConfig small", "moe_token_dropout = 0.2: "},
    {"NemotronHConfig latent", "moe_latent_size = 32: tokens are projected"},
    {"Qwen3OmniMoeConfig small", "talker_config.text_config has experts too"},
    {"Ernie4_5_VLMoeTextConfig small", "as many for image tokens"},
    {"Gemma4TextConfig small", "per_expert_scale"},
    {"Dots3NoteVisionConfig default", "per_layer_config: "},
    {"Qwen2MoeConfig default", "shared_expert_intermediate_size = 5632: shared experts"},
    {"HunYuanMoEV1Config small", "a shared MLP"},
    {"DeepseekV32Config default", "mlp_layer_types: 3 of 61 decoder layers are dense"},
    {"Cohere2MoeConfig default", "shared_expert_combination_strategy = \"average\""},
    {"JambaConfig default", "expert_layer_period = 2: "},
    {"JetMoeConfig default", "a bias of [H]"},
};

TEST(SavedConfigurations, TellWhatIsNotPartOfTheLayer) {
  const std::map<std::string, std::string> configurations = read_lines("configurations.txt");
  for (const auto& [name, text] : kNotes) {
    const Result<HuggingFaceLayer> made =
        layer_from_hugging_face(configurations.at(name), name, {});
    ASSERT_TRUE(made) << name << ": " << made.error().message;
    EXPECT_TRUE(std::ranges::any_of(
        made->notes,
        [&part = text](const std::string& note) { return note.find(part) != std::string::npos; }))
        << name << " has no note with: " << text;
  }
}

// How a configuration chooses experts: its "router", or a part of the reason why there is none.
const Note kRoutersOfModels[] = {
    {"Qwen3MoeConfig default", R"({"logits_dtype": "bf16"})"},
    {"Qwen3NextConfig default", R"({"normalize": "sum", "logits_dtype": "bf16"})"},
    {"DeepseekV3Config default",
     R"({"score": "sigmoid", "bias": true, "groups": 8, "groups_kept": 4, "normalize": "sum", )"
     R"("epsilon": 1e-20, "scale": 2.5})"},
    // Neither one group nor n_group = null are groups, and topk_method is greedy.
    {"Glm4MoeConfig default",
     R"({"score": "sigmoid", "bias": true, "normalize": "sum", "epsilon": 1e-20})"},
    {"AXK2Config default",
     R"({"score": "sigmoid", "bias": true, "normalize": "sum", "epsilon": 1e-20, "scale": 2.5})"},
    {"UnlimitedOcrTextConfig default", "{}"},
    // Weights that are not normalized have no epsilon.
    {"Dots1Config small", R"({"score": "sigmoid", "bias": true})"},
    {"KimiLinearConfig default",
     R"({"score": "sigmoid", "bias": true, "normalize": "sum", "epsilon": 1e-20, "scale": 2.446})"},
    {"LagunaConfig default",
     R"({"score": "sigmoid", "bias": true, "normalize": "sum", "logits_dtype": "bf16"})"},
    {"LongcatFlashConfig default", R"({"bias": true, "scale": 6, "zero_experts": 256})"},
    {"Ernie4_5_MoeConfig default", R"({"bias": true, "normalize": "floor", "epsilon": 1e-12})"},
    {"OpenAIPrivacyFilterConfig default", R"({"when": "after", "scale": 0.25})"},
    {"Cohere2MoeConfig default",
     R"({"when": "after", "normalize": "sum", "logits_dtype": "bf16"})"},
    {"Kolibri1Config default", R"({"score": "sigmoid", "when": "after", "bias": true})"},
    {"Gemma4TextConfig small",
     R"({"normalize": "sum", "expert_scale": true, "logits_dtype": "bf16"})"},
    {"PhimoeConfig default", "it draws experts at random"},
    {"ZayaConfig default", "its logits come from an MLP"},
    {"DbrxConfig small", "another norm than the sum"},
    {"Llama4TextConfig default", "multiply the input of experts"},
};

TEST(SavedConfigurations, TellHowExpertsAreChosenOrWhyNoFormulaSaysIt) {
  const std::map<std::string, std::string> configurations = read_lines("configurations.txt");
  for (const auto& [name, text] : kRoutersOfModels) {
    const Result<HuggingFaceLayer> made =
        layer_from_hugging_face(configurations.at(name), name, {});
    ASSERT_TRUE(made) << name << ": " << made.error().message;
    const std::string told =
        made->router ? to_json(*made->router) : std::string(made->router.error().message);
    EXPECT_NE(told.find(text), std::string::npos) << name << ": " << told;
    EXPECT_EQ(made->router.has_value(), text.starts_with("{")) << name;
  }
  for (const auto& [name, config] : configurations) {
    const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, name, {});
    if (!made || made->router || is_unknown(*made)) continue;
    EXPECT_NE(made->router.error().message.find("whose router no formula expresses"),
              std::string::npos)
        << name << ": " << made->router.error().message;
  }
}

}  // namespace
}  // namespace moejit::compiler
