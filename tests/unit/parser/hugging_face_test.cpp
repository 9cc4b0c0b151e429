// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

fs::path examples() { return fs::path(MOEJIT_SOURCE_DIR) / "docs/examples/layers"; }

Result<HuggingFaceLayer> layer_of_config(const std::string& model, int32_t expert_parallel = 1) {
  const fs::path path =
      fs::path(MOEJIT_SOURCE_DIR) / "tests/unit/parser/configs" / (model + ".json");
  return layer_from_hugging_face(read_file(path), model, {.expert_parallel = expert_parallel});
}

bool has_note(const HuggingFaceLayer& made, std::string_view part) {
  return std::any_of(made.notes.begin(), made.notes.end(), [part](const std::string& note) {
    return note.find(part) != std::string::npos;
  });
}

// configs/ holds extracts of the models' config.json files under their own key names,
// docs/examples/layers the figures as tables of MoE models give them.
struct Model {
  std::string config;
  int32_t expert_parallel;
  std::string model_type;
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.config; }

class PublishedModel : public testing::TestWithParam<Model> {};

TEST_P(PublishedModel, GivesTheReadyDescription) {
  const auto& [config, expert_parallel, model_type] = GetParam();
  const Result<HuggingFaceLayer> made = layer_of_config(config, expert_parallel);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->model_type, model_type);
  EXPECT_EQ(made->used_keys.size(), 5u);

  const std::string name =
      expert_parallel == 1 ? config : config + "-ep" + std::to_string(expert_parallel);
  const Result<Layer> ready = parse_layer(read_file(examples() / (name + ".json")), name);
  ASSERT_TRUE(ready) << ready.error().message;
  EXPECT_EQ(ready->name, name);
  Layer expected = *ready;
  expected.name = made->layer.name;
  // The ready descriptions say 128, also of Llama 4 Maverick, whose experts have 64 rows in the
  // mean.
  set_splits_alignment(expected, usual_splits_alignment(expected));
  EXPECT_EQ(made->layer, expected);
}

std::string case_name(const testing::TestParamInfo<Model>& info) {
  std::string name = info.param.config;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

const Model kModels[] = {
    {"deepseek-v2-lite", 1, "deepseek_v2"},
    {"deepseek-v2", 8, "deepseek_v2"},
    {"deepseek-v3", 8, "deepseek_v3"},
    {"moonlight-16b-a3b", 1, "deepseek_v3"},
    {"kimi-k2", 8, "kimi_k2"},
    {"qwen3-30b-a3b", 1, "qwen3_moe"},
    {"qwen3-235b-a22b", 8, "qwen3_moe"},
    {"qwen3-next-80b-a3b", 8, "qwen3_next"},
    {"mixtral-8x7b", 1, "mixtral"},
    {"mixtral-8x22b", 8, "mixtral"},
    {"gpt-oss-20b", 1, "gpt_oss"},
    {"gpt-oss-120b", 8, "gpt_oss"},
    {"llama-4-scout", 1, "llama4"},
    {"llama-4-maverick", 8, "llama4"},
    {"glm-4.5", 8, "glm4_moe"},
    {"glm-4.5-air", 8, "glm4_moe"},
    {"minimax-m2", 8, "minimax_m2"},
    {"olmoe-1b-7b", 1, "olmoe"},
    {"nemotron-3-nano-30b-a3b", 1, "nemotron_h"},
};

INSTANTIATE_TEST_SUITE_P(All, PublishedModel, testing::ValuesIn(kModels), case_name);

TEST(ReadyDescriptions, AllParseAndAreNamedAfterTheirFiles) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(examples())) {
    const Result<Layer> layer = parse_layer(read_file(entry.path()), entry.path().string());
    ASSERT_TRUE(layer) << layer.error().message;
    EXPECT_EQ(layer->name + ".json", entry.path().filename().string());
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST(HuggingFace, TellsWhichKeyGaveWhat) {
  const HuggingFaceLayer made = layer_of_config("llama-4-scout").value();
  const std::vector<std::string> expected = {"text_config.num_local_experts -> experts = 16",
                                             "text_config.num_experts_per_tok -> top_k = 1",
                                             "text_config.hidden_size -> hidden = 5120",
                                             "text_config.intermediate_size -> intermediate = 8192",
                                             "text_config.hidden_act -> activation = swiglu"};
  EXPECT_EQ(made.used_keys, expected);
}

TEST(HuggingFace, NotesWhatTheDescriptionDoesNotExpress) {
  const HuggingFaceLayer deepseek = layer_of_config("deepseek-v3").value();
  EXPECT_TRUE(has_note(deepseek, "router"));
  EXPECT_TRUE(has_note(deepseek, "n_shared_experts = 1"));
  EXPECT_TRUE(has_note(deepseek, "first_k_dense_replace = 3"));
  EXPECT_TRUE(has_note(deepseek, "routed_scaling_factor = 2.5"));
  EXPECT_TRUE(has_note(deepseek, "quantization_config = quant_method \"fp8\""));

  const HuggingFaceLayer oss = layer_of_config("gpt-oss-20b").value();
  EXPECT_TRUE(has_note(oss, "gate_up_proj"));
  EXPECT_FALSE(has_note(oss, "clamped"));
  EXPECT_TRUE(oss.layer.biases);
}

TEST(HuggingFace, NotesNothingThatDoesNotApply) {
  EXPECT_EQ(layer_of_config("mixtral-8x7b")->notes.size(), 1u);  // the router
  EXPECT_EQ(layer_of_config("qwen3-30b-a3b")->notes.size(), 1u);
  EXPECT_FALSE(has_note(*layer_of_config("glm-4.5-air"), "routed_scaling_factor"));
  EXPECT_FALSE(has_note(*layer_of_config("minimax-m2"), "shared_intermediate_size"));
  EXPECT_FALSE(has_note(*layer_of_config("llama-4-scout"), "interleave_moe_layer_step"));
}

TEST(HuggingFace, ReadsTheRouterOfPublishedModels) {
  const auto router_of = [](const std::string& model) {
    const HuggingFaceLayer made = layer_of_config(model).value();
    return made.router ? to_json(*made.router) : made.router.error().message;
  };
  EXPECT_EQ(router_of("qwen3-30b-a3b"), R"({"normalize": "sum", "logits_dtype": "bf16"})");
  EXPECT_EQ(router_of("deepseek-v2-lite"), "{}");
  EXPECT_EQ(router_of("deepseek-v2"),
            R"({"groups": 8, "groups_kept": 3, "group_score": "max", "group_fill": "zero", )"
            R"("scale": 16})");
  EXPECT_EQ(router_of("kimi-k2"), R"({"score": "sigmoid", "bias": true, "normalize": "sum", )"
                                  R"("epsilon": 1e-20, "scale": 2.827})");
  EXPECT_EQ(router_of("gpt-oss-20b"), R"({"when": "after", "logits_dtype": "bf16"})");
  EXPECT_EQ(router_of("minimax-m2"), R"({"score": "sigmoid", "bias": true, "normalize": "sum", )"
                                     R"("logits_dtype": "bf16"})");
}

TEST(HuggingFace, ReadsTheSharedExpertsOfPublishedModels) {
  const auto shared_of = [](const std::string& model) {
    const HuggingFaceLayer made = layer_of_config(model).value();
    return made.shared ? to_json(*made.shared) : made.shared.error().message;
  };
  EXPECT_EQ(shared_of("deepseek-v3"), R"({"experts": 1, "gate": false})");
  EXPECT_EQ(shared_of("deepseek-v2-lite"), R"({"experts": 2, "gate": false})");
  EXPECT_EQ(shared_of("glm-4.5-air"), R"({"experts": 1, "gate": false})");
  EXPECT_EQ(shared_of("qwen3-next-80b-a3b"), R"({"experts": 1, "gate": true})");
  EXPECT_EQ(shared_of("nemotron-3-nano-30b-a3b"),
            R"({"experts": 2, "gate": false})");  // 3712 = 2 * 1856
  EXPECT_EQ(shared_of("qwen3-30b-a3b"), R"({"experts": 0, "gate": false})");
}

TEST(HuggingFace, TellsWhySharedExpertsCannotRunInTheLayer) {
  const auto reason_of = [](const std::string& model_type, const std::string& keys) {
    const std::string config = R"({"model_type": ")" + model_type + R"(", "num_experts": 8,
        "num_experts_per_tok": 2, "hidden_size": 256, "moe_intermediate_size": 128,
        )";
    const HuggingFaceLayer made = layer_from_hugging_face(config + keys + "}", "c", {}).value();
    return made.shared ? to_json(*made.shared) : made.shared.error().message;
  };
  EXPECT_EQ(reason_of("qwen2_moe", R"("shared_expert_intermediate_size": 192)"),
            "c:1: $.model_type: got shared experts 192 wide in all, wanted 1 to 64 times the "
            "experts' 128");
  EXPECT_EQ(reason_of("nemotron_h",
                      R"("moe_shared_expert_intermediate_size": 256, "moe_latent_size": 64)"),
            "c:3: $.moe_latent_size: got experts that see a projection of the tokens, and shared "
            "experts that see the tokens");
  EXPECT_EQ(reason_of("nemotron_h", R"("moe_shared_expert_intermediate_size": 256)"),
            R"({"experts": 2, "gate": false})");
  EXPECT_EQ(reason_of("ernie4_5_moe", R"("use_bias": true)"),
            "c:3: $.use_bias: got shared experts with biases, beside experts without");
  EXPECT_EQ(reason_of("hy_v4", R"("n_shared_experts": 1)"),
            "c:1: $.model_type: got hy_v4: the experts' activation has a limit, and that of the "
            "shared experts has none");
  EXPECT_EQ(reason_of("deepseek_v3", R"("n_shared_experts": null)"),
            R"({"experts": 0, "gate": false})");
  EXPECT_EQ(reason_of("new_moe", R"("n_shared_experts": 1)"),
            "c:1: $.model_type: got a family whose shared experts are not known");
}

TEST(HuggingFace, HasNoRouterWhereTheFileContradictsTheFamily) {
  const auto reason_of = [](const std::string& keys) {
    const std::string config = R"({"model_type": "deepseek_v3", "n_routed_experts": 8,
        "num_experts_per_tok": 2, "hidden_size": 256, "moe_intermediate_size": 128, "topk_group": 1,
        )";
    const HuggingFaceLayer made = layer_from_hugging_face(config + keys + "}", "c", {}).value();
    return made.router ? to_json(*made.router) : made.router.error().message;
  };
  EXPECT_EQ(reason_of(R"("scoring_func": "softmax", "n_group": 1)"),
            "c:3: $.scoring_func: got \"softmax\", but the modules of deepseek_v3 have sigmoid");
  EXPECT_EQ(reason_of(R"("topk_method": "greedy", "n_group": 1)"),
            "c:3: $.topk_method: got \"greedy\", but the modules of deepseek_v3 have noaux_tc");
  EXPECT_EQ(reason_of(R"("n_group": 3)"),
            "router of deepseek_v3:1: $.groups: got 3 for 8 experts, wanted a divisor");
  EXPECT_EQ(reason_of(R"("norm_topk_prob": 1, "n_group": 1)"),
            "c:3: $.norm_topk_prob: got 1, wanted true or false");
}

TEST(HuggingFace, TakesTheActivationOfTheModel) {
  const HuggingFaceLayer oss = layer_of_config("gpt-oss-20b").value();
  EXPECT_EQ(oss.layer.activation, make_activation("clamped_swiglu").value());
  EXPECT_EQ(oss.used_keys.back(),
            "swiglu_limit -> activation = clamped_swiglu(limit=7,alpha=1.702,offset=1)");

  const auto with_act = [](const std::string& name) {
    const std::string config = R"({"model_type": "olmoe", "num_experts": 8,
        "num_experts_per_tok": 2, "hidden_size": 256, "intermediate_size": 128, "hidden_act": ")";
    return layer_from_hugging_face(config + name + "\"}", "c", {})->layer.activation;
  };
  EXPECT_EQ(with_act("gelu"), make_activation("geglu").value());
  EXPECT_EQ(with_act("gelu_pytorch_tanh"), parse_activation("gelu_tanh(gate) * up").value());
}

TEST(HuggingFace, SlicesTheExpertsAmongRanks) {
  const Layer layer = layer_of_config("deepseek-v3", 64)->layer;
  EXPECT_EQ(layer.experts, 256);
  EXPECT_EQ(layer.local_experts, 4);
  EXPECT_EQ(layer.dispatch, Dispatch::kFp8);
  EXPECT_EQ(layer.name, "deepseek-v3-ep64");
}

TEST(HuggingFace, TakesTokensAndRecipeFromTheOptions) {
  const std::string config = R"({"model_type": "mixtral", "num_local_experts": 8,
      "num_experts_per_tok": 2, "hidden_size": 4096, "intermediate_size": 14336})";
  const Layer layer =
      layer_from_hugging_face(config, "c", {.max_tokens = 100, .recipe = Recipe::kMxfp8})->layer;
  EXPECT_EQ(layer.max_tokens, 100);
  EXPECT_EQ(layer.recipe, Recipe::kMxfp8);
  EXPECT_EQ(layer.max_permuted_rows, worst_case_permuted_rows(layer));
}

TEST(HuggingFace, FindsAKnownLanguageModelInsideAWrapperOfItsOwnType) {
  const std::string config = R"({"model_type": "some_vl", "text_config": {"model_type": "kimi_k2",
      "n_routed_experts": 384, "num_experts_per_tok": 8, "hidden_size": 7168,
      "moe_intermediate_size": 2048}})";
  const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->model_type, "kimi_k2");
  EXPECT_EQ(made->layer.experts, 384);
}

TEST(HuggingFace, TakesTheNumberOfExpertsUnderEachOfItsNames) {
  for (const std::string key :
       {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"})
    for (const std::string family : {"qwen3_moe", "deepseek_v3", "mixtral"}) {
      const std::string figures = R"({"model_type": ")" + family + R"(", ")" + key +
                                  R"(": 8, "num_experts_per_tok": 2, "hidden_size": 256,
          "moe_intermediate_size": 128})";
      const std::string wrapped = R"({"model_type": "some_vl", "text_config": )" + figures + "}";
      for (const std::string& config : {figures, wrapped}) {
        const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
        ASSERT_TRUE(made) << made.error().message;
        EXPECT_EQ(made->layer.experts, 8);
        EXPECT_EQ(made->model_type, family);
      }
    }
}

TEST(HuggingFace, TakesTwoNamesThatAgree) {
  const std::string config = R"({"model_type": "qwen3_moe", "num_experts": 8,
      "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_size": 256,
      "moe_intermediate_size": 128})";
  const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->layer.experts, 8);
}

const std::string kGptOss = R"({"model_type": "gpt_oss", "num_local_experts": 8,
    "num_experts_per_tok": 2, "hidden_size": 256, "intermediate_size": 128)";

TEST(HuggingFace, TakesLimitAndAlphaOfGptOss) {
  const Result<HuggingFaceLayer> made =
      layer_from_hugging_face(kGptOss + R"(, "swiglu_limit": 5.0, "swiglu_alpha": 1.5})", "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(to_string(made->layer.activation), "clamped_swiglu(limit=5,alpha=1.5,offset=1)");
  const std::vector<std::string> last = {
      "swiglu_limit -> activation = clamped_swiglu(limit=5,alpha=1.5,offset=1)",
      "swiglu_alpha -> activation = clamped_swiglu(limit=5,alpha=1.5,offset=1)"};
  EXPECT_EQ(std::vector<std::string>(made->used_keys.end() - 2, made->used_keys.end()), last);
}

TEST(HuggingFace, TellsOfNumbersThatTheFileDoesNotHave) {
  const HuggingFaceLayer made = layer_from_hugging_face(kGptOss + "}", "c", {}).value();
  EXPECT_TRUE(has_note(made, "swiglu_limit is not given: 7 is taken"));
  EXPECT_TRUE(has_note(made, "swiglu_alpha is not given: 1.702 is taken"));
}

TEST(HuggingFace, TellsOfKeysThatChangeOtherFamiliesExperts) {
  const std::string config = R"({"model_type": "mixtral", "num_local_experts": 8,
      "num_experts_per_tok": 2, "hidden_size": 4096, "intermediate_size": 14336,
      "swiglu_limit": 7.0})";
  EXPECT_TRUE(has_note(layer_from_hugging_face(config, "c", {}).value(),
                       "swiglu_limit = 7.0: not read, since experts of mixtral"));
}

TEST(HuggingFace, ReadsAFamilyThatItDoesNotKnowByItsKeysAndSaysSo) {
  const std::string config = R"({"model_type": "new/moe", "n_routed_experts": 8, "moe_k": 2,
      "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128,
      "hidden_act": "gelu"})";
  const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(has_note(*made, "the family \"new/moe\" is not known"));
  EXPECT_EQ(made->layer.name, "new-moe");
  EXPECT_EQ(made->layer.intermediate, 128);
  EXPECT_EQ(made->layer.activation, make_activation("geglu").value());
}

TEST(HuggingFace, TakesNumbersAsPythonWritesThem) {
  const std::string config = R"({"model_type": "mixtral", "note": "NaN \"Infinity\" \\",
      "time_step_limit": [0.0, Infinity, -Infinity, NaN], "num_local_experts": 8,
      "num_experts_per_tok": 2, "hidden_size": 4096, "intermediate_size": 14336})";
  const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->layer.experts, 8);
  for (const std::string cut : {"[NaN", "{\"a\": \"NaN", "\"NaN\\", "Infinity"})
    EXPECT_FALSE(layer_from_hugging_face(cut, "c", {})) << cut;
}

TEST(HuggingFace, DescribesMostLayersWhereLimitsDiffer) {
  const std::string config = R"({"model_type": "step3p5", "moe_num_experts": 8, "moe_top_k": 2,
      "hidden_size": 256, "moe_intermediate_size": 128, "swiglu_limits": [0, null, 0.0, 7.0]})";
  const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->layer.activation, make_activation("swiglu").value());
  EXPECT_TRUE(has_note(*made, "1 of 4 decoder layers have the limit 7"));
}

TEST(HuggingFace, TakesListsThatAgreeForAllLayers) {
  const std::string config = R"({"model_type": "hunyuan_v1_moe", "num_experts": [64, 64],
      "moe_topk": [8, 8], "hidden_size": 4096, "intermediate_size": 3072,
      "moe_intermediate_size": [3072, 3072]})";
  const Result<HuggingFaceLayer> made = layer_from_hugging_face(config, "c", {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->layer.top_k, 8);
  EXPECT_EQ(made->layer.intermediate, 3072);
}

TEST(HuggingFace, MakesDescriptionsThatTheParserAccepts) {
  for (const char* model : {"deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b"}) {
    const Layer layer = layer_of_config(model, 8)->layer;
    const Result<Layer> read = parse_layer(to_json(layer), model);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, layer);
  }
}

}  // namespace
}  // namespace moejit::compiler
