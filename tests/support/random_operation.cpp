// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_operation.h"

#include "tests/support/random_router.h"
#include "tests/support/seeded_random.h"

#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <string_view>
#include <vector>

namespace moejit::testing {
namespace {

class OperationMaker {
 public:
  explicit OperationMaker(uint64_t seed) : random_(seed) {}

  std::string json() {
    constexpr void (OperationMaker::*kKinds[])() = {&OperationMaker::quantize,
                                                    &OperationMaker::quantize_weights,
                                                    &OperationMaker::pack_weights,
                                                    &OperationMaker::route,
                                                    &OperationMaker::permute_pad,
                                                    &OperationMaker::permute_pad,
                                                    &OperationMaker::unpermute,
                                                    &OperationMaker::activation,
                                                    &OperationMaker::activation,
                                                    &OperationMaker::transpose,
                                                    &OperationMaker::scale_columns,
                                                    &OperationMaker::quantize_columns,
                                                    &OperationMaker::weight_columns,
                                                    &OperationMaker::swizzle_scales,
                                                    &OperationMaker::multi_cast_transpose,
                                                    &OperationMaker::grouped_gemm,
                                                    &OperationMaker::grouped_gemm,
                                                    &OperationMaker::contraction_grouped_gemm,
                                                    &OperationMaker::amax_rows,
                                                    &OperationMaker::amax_weights,
                                                    &OperationMaker::scale_experts,
                                                    &OperationMaker::router,
                                                    &OperationMaker::router,
                                                    &OperationMaker::router};
    (this->*random_.pick(kKinds))();
    return object();
  }
  std::string router_json() {
    router();
    return object();
  }

 private:
  std::string object() const { return fmt::format("{{{}}}", fmt::join(fields_, ", ")); }
  void add(std::string_view key, std::string_view value) {
    fields_.push_back(fmt::format("\"{}\": {}", key, value));
  }
  void add(std::string_view key, int64_t value) { add(key, std::to_string(value)); }
  void add_flag(std::string_view key) { add(key, random_.in_percent(50) ? "true" : "false"); }
  template <std::size_t kCount>
  void add_choice(std::string_view key, const char* const (&values)[kCount]) {
    add(key, fmt::format("\"{}\"", random_.pick(values)));
  }
  void name(std::string_view value) { add("operation", fmt::format("\"{}\"", value)); }

  // Returns a multiple of 16, mostly one that is usual in models.
  int64_t width() {
    constexpr int64_t kUsual[] = {16, 64, 128, 144, 192, 256, 320, 384, 512, 1024};
    return random_.in_percent(70) ? random_.pick(kUsual) : 16 * random_.between(1, 40);
  }
  int64_t rows() {
    constexpr int64_t kUsual[] = {16, 64, 192, 256, 512};
    return random_.pick(kUsual);
  }
  void add_experts() { add("local_experts", random_.between(1, 9)); }

  void add_routed_tokens() {
    constexpr int64_t kAlignments[] = {1, 8, 16, 128};
    add("max_tokens", random_.between(1, 150));
    add("top_k", random_.between(1, 8));
    add_experts();
    add("splits_alignment", random_.pick(kAlignments));
  }

  void quantize() {
    name("quantize");
    add("max_tokens", random_.between(1, 150));
    add("columns", width());
    if (random_.in_percent(20)) return add("recipe", "\"nvfp4\"");
    if (random_.in_percent(15)) return add_mx_values();
    add_recipe(true);
  }

  // Adds a cast to values of mxfp8.
  void add_mx_values() {
    add("recipe", "\"mxfp8\"");
    add("result", "\"values\"");
  }

  // Adds the recipe of rows, and if blocks of these may share scales, how many do.
  void add_recipe(bool may_share) {
    const bool is_flow = random_.in_percent(50);
    if (!is_flow) return add_choice("recipe", {"fp8_blockwise", "fp8_rowwise", "mxfp8"});
    if (may_share) add("scale_sharing_k", random_.between(1, 2));
  }

  void quantize_weights() {
    name("quantize_weights");
    if (random_.in_percent(30)) return quantize_weights_in_groups();
    const int64_t sections = random_.between(1, 2);
    add("local_experts", random_.between(1, 3));
    add("sections", sections);
    add("rows", sections * 16 * random_.between(1, 20));
    add("columns", width());
    add("scale_sharing_k", random_.between(1, 2));
    add_flag("colwise");
    if (sections == 2) add_choice("gate_up_layout", {"concat", "interleaved"});
  }

  void quantize_weights_in_groups() {
    if (random_.in_percent(30)) return quantize_weights_in_rows();
    const bool is_mx = random_.in_percent(50);
    const bool is_colwise = random_.in_percent(50);
    if (is_mx && random_.in_percent(50))
      add_mx_values();
    else
      add("recipe", is_mx ? "\"mxfp8\"" : "\"nvfp4\"");
    add("local_experts", random_.between(1, 3));
    add("rows", (is_mx ? 32 : 16) * random_.between(1, 10));
    add("columns", width());
    add("colwise", is_colwise ? "true" : "false");
    if (is_mx && is_colwise) add_flag("rowwise");
  }

  void quantize_weights_in_rows() {
    const int64_t sections = random_.between(1, 2);
    add("recipe", "\"fp8_rowwise\"");
    add("local_experts", random_.between(1, 3));
    add("sections", sections);
    add("rows", sections * 16 * random_.between(1, 10));
    add("columns", width());
    if (sections == 2) add_choice("gate_up_layout", {"concat", "interleaved"});
  }

  void pack_weights() {
    const int64_t sections = random_.between(1, 2);
    name("pack_weights");
    const auto format = random_.between(0, 2);
    add("weight_format",
        std::array{R"("mxfp4")", R"("nvfp4")", R"("int4")"}[static_cast<size_t>(format)]);
    add("local_experts", random_.between(1, 3));
    add("sections", sections);
    add("rows", sections * 16 * random_.between(1, 20));
    add("columns", format == 2 ? 128 * random_.between(1, 3)
                               : (format == 0 ? 32 : 16) * random_.between(1, 12));
    if (sections == 2) add_choice("gate_up_layout", {"concat", "interleaved"});
  }

  void weight_columns() {
    name(random_.in_percent(50) ? "scale_weight_columns" : "quantize_weight_columns");
    add("local_experts", random_.between(1, 3));
    add("rows", 16 * random_.between(1, 20));
    add("columns", width());
  }

  void route() {
    name("route");
    add_routed_tokens();
    add_flag("colwise_offs");
    if (random_.in_percent(40)) return add("input", "\"routing_map\"");
    add_choice("topk_ids_dtype", {"i32", "i64"});
    add_choice("foreign_experts", {"report", "ignore"});
  }

  void permute_pad() {
    const bool quantizes = random_.in_percent(50), is_gradient = random_.in_percent(40);
    name(fmt::format("{}permute_pad{}", quantizes ? "quantize_" : "", is_gradient ? "_grad" : ""));
    add_routed_tokens();
    add("columns", width());
    if (!quantizes) add_choice("format", {"fp8", "bf16", "fp4"});
    if (quantizes) add_recipe(true);
    if (quantizes) add_flag("keep_rows");
    if (is_gradient) return;
    add_choice("topk_probs_dtype", {"f32", "bf16"});
    add_flag("row_tokens");
  }

  void unpermute() {
    const bool is_gradient = random_.in_percent(50);
    name(is_gradient ? "unpermute_grad" : "unpermute");
    add_routed_tokens();
    add("columns", width());
    if (!is_gradient) return;
    add("dprobs_columns", random_.between(1, 6));
    add_flag("bias_dprobs");
    add_choice("topk_probs_dtype", {"f32", "bf16"});
  }

  void activation() {
    constexpr const char* kActivations[] = {"\"swiglu\"", "\"geglu\"", "\"relu_squared\"",
                                            "{\"preset\": \"clamped_swiglu\", \"limit\": 3.5}",
                                            "{\"expression\": \"tanh(gate) * up\"}"};
    const bool is_gradient = random_.in_percent(50), quantizes = random_.in_percent(50);
    name(fmt::format("activation{}{}", is_gradient ? "_backward" : "",
                     quantizes ? "_quantize" : ""));
    add_experts();
    add("max_permuted_rows", rows());
    add("intermediate", width());
    add("activation", random_.pick(kActivations));
    if (is_gradient) add_flag("dprobs");
    if (!quantizes && random_.in_percent(30)) add("gate_up_layout", "\"interleaved\"");
    if (quantizes) add_recipe(!is_gradient);
  }

  void scale_columns() {
    name("scale_columns");
    add_experts();
    add("max_permuted_rows", rows());
    add("columns", width());
  }

  void quantize_columns() {
    name("quantize_columns");
    add_experts();
    add("max_permuted_rows", rows());
    add("columns", width());
    if (random_.in_percent(50)) return add_choice("recipe", {"fp8_blockwise", "fp8_rowwise"});
    if (random_.in_percent(30))
      add_mx_values();
    else
      add_choice("recipe", {"mxfp8", "nvfp4"});
    add_flag("rowwise");
  }

  void swizzle_scales() {
    name("swizzle_scales");
    add_experts();
    add("max_permuted_rows", rows());
    add("columns", width());
    add_flag("of_columns");
    add_choice("recipe", {"mxfp8", "nvfp4"});
  }

  void amax_rows() {
    name("amax_rows");
    add_experts();
    add("max_permuted_rows", rows());
    add("columns", width());
  }

  void amax_weights() {
    name("amax_weights");
    add("local_experts", random_.between(1, 3));
    add("rows", 16 * random_.between(1, 40));
    add("columns", width());
  }

  void scale_experts() {
    name("scale_experts");
    add_experts();
    if (random_.in_percent(50)) add("max_permuted_rows", rows());
    add("magnitudes", random_.between(1, 20));
    add_choice("dtype", {"f4_e2m1", "f8_e4m3", "f8_e5m2"});
  }

  void transpose() {
    name("transpose");
    add_experts();
    add("max_permuted_rows", rows());
    add("columns", width());
    add_choice("dtype", {"f8_e4m3", "f8_e5m2"});
    add_choice("rule", {"ideal", "fork_compat"});
    add_flag("count_flushed");
  }

  void router() {
    name(random_.in_percent(50) ? "router" : "router_backward");
    const RandomRouter router = random_router(random_);
    add("max_tokens", random_.between(1, 40));
    add("experts", router.experts);
    add("top_k", router.top_k);
    add_choice("topk_ids_dtype", {"i32", "i64"});
    add("router", router.json);
  }

  void multi_cast_transpose() {
    name("multi_cast_transpose");
    constexpr int64_t kSizes[] = {0, 1, 16, 48, 80, 128, 130, 256};
    std::vector<std::string> sizes;
    for (int64_t i = random_.between(1, 5); i > 0; --i) {
      const int64_t height = random_.pick(kSizes);
      sizes.push_back(fmt::format("[{}, {}]", height, random_.pick(kSizes)));
    }
    add("sizes", fmt::format("[{}]", fmt::join(sizes, ", ")));
    add_choice("input_dtype", {"bf16", "f32"});
    add_choice("output_dtype", {"f8_e4m3", "f8_e5m2"});
  }

  void grouped_gemm() {
    name("grouped_gemm");
    const int64_t scales = random_.between(0, 3), sections = random_.between(1, 2);
    constexpr const char* kScales[] = {"row_block", "tensor", "row_column", "none"};
    add("scales", fmt::format("\"{}\"", kScales[scales]));
    add_experts();
    add("max_permuted_rows", rows());
    add("sections", sections);
    add("n", sections * 16 * random_.between(1, 20));
    add("k", 64 * random_.between(1, 6));
    if (scales == 0) add("scale_sharing_k", random_.between(1, 2));
    const bool is_fast = scales == 1 && random_.in_percent(40);
    if (is_fast) add("accumulation", "\"fast\"");
    if (scales == 3) add_choice("b_major", {"k", "mn"});
    if (scales == 2) add_choice("a_dtype", {"f8_e4m3", "f8_e5m2"});
    if (is_fast) add_choice("a_dtype", {"f8_e4m3", "f8_e5m2"});
    if (scales == 1 && !is_fast) {
      const bool is_bf16 = random_.in_percent(40);
      add("a_dtype", is_bf16 ? "\"bf16\"" : "\"f8_e5m2\"");
      if (is_bf16) add_choice("b_major", {"k", "mn"});
    }
    if (scales == 0 || scales == 3) add_choice("bias", {"none", "columns", "columns_times_prob"});
    add_flag("zeros_rest");
  }

  void contraction_grouped_gemm() {
    name("contraction_grouped_gemm");
    add_experts();
    add("max_columns", 128 * random_.between(1, 6));
    add("rows", width());
    add("n", width());
    constexpr const char* kScales[] = {"tile", "row", "tensor", "row_column", "none"};
    const int64_t scales = random_.between(0, 4);
    add("scales", fmt::format("\"{}\"", kScales[scales]));
    add_choice("output", {"f32", "f32_add", "bf16", "bf16_add"});
    const bool is_bf16 = scales == 4 || (scales == 2 && random_.in_percent(30));
    if (is_bf16 && random_.in_percent(50)) add("splits_alignment", random_.between(1, 64));
    if (is_bf16 && scales == 2) add("a_dtype", "\"bf16\"");
    if (is_bf16) return;
    if (scales == 2 || scales == 3) add_choice("accumulation", {"fp32", "fast"});
    if (scales == 2 || scales == 3) add_choice("a_dtype", {"f8_e4m3", "f8_e5m2"});
  }

  SeededRandom random_;
  std::vector<std::string> fields_;
};

}  // namespace

std::string random_operation(uint64_t seed) { return OperationMaker(seed).json(); }
std::string random_router_operation(uint64_t seed) { return OperationMaker(seed).router_json(); }

}  // namespace moejit::testing
