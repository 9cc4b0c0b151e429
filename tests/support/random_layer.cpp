// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_layer.h"

#include "tests/support/random_formula.h"
#include "tests/support/random_router.h"
#include "tests/support/seeded_random.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <string_view>
#include <vector>

namespace moejit::testing {
namespace {

class LayerMaker {
 public:
  LayerMaker(uint64_t seed, LayerSize size) : seed_(seed), random_(seed), size_(size) {}

  std::string json() {
    if (random_.in_percent(50)) add("name", fmt::format("\"random {}\"", seed_));
    choose_recipe();
    choose_sizes();
    choose_activation();
    choose_passes();
    choose_rows();
    choose_flags();
    choose_routing();
    choose_gradients();
    if (random_.in_percent(15)) {
      take_grouped_rows();
    } else {
      if (random_.in_percent(25)) add_router();
      choose_shared();
    }
    choose_memory();
    return fmt::format("{{{}}}", fmt::join(fields_, ", "));
  }

 private:
  void add(std::string_view key, std::string_view value) {
    fields_.push_back(fmt::format("\"{}\": {}", key, value));
  }
  void add(std::string_view key, int64_t value) { add(key, std::to_string(value)); }

  void choose_recipe() {
    is_bf16_ = random_.in_percent(35);
    is_training_ = random_.in_percent(60);
    has_expert_scales_ = !is_bf16_ && random_.in_percent(20);
    has_whole_scales_ = !is_bf16_ && !has_expert_scales_ && random_.in_percent(25);
    if (is_bf16_)
      add("recipe", "\"bf16\"");
    else if (has_expert_scales_)
      choose_expert_scales();
    else if (has_whole_scales_)
      add("recipe", "\"fp8_rowwise\"");
    else if (random_.in_percent(30))
      add("recipe", "\"fp8_flow\"");
    else
      choose_casts();
    if (random_.in_percent(10)) add("dtype", "\"bf16\"");
    if (random_.in_percent(10)) add("block_size", 128);
    if (has_blocks() && !is_blockwise_ && random_.in_percent(30))
      add("scale_sharing_k", random_.between(1, 2));
  }

  // Chooses scales of this step or of the steps before, and what these recipes leave open.
  void choose_expert_scales() {
    if (random_.in_percent(30))
      add("gradient_format", random_.in_percent(70) ? "\"e4m3\"" : "\"e5m2\"");
    if (random_.in_percent(50)) {
      add("recipe", "\"fp8_current\"");
      if (random_.in_percent(30))
        add("power_of_2_scales", random_.in_percent(70) ? "true" : "false");
      return;
    }
    add("recipe", "\"fp8_delayed\"");
    if (random_.in_percent(30)) add("margin", random_.between(0, 3));
    if (random_.in_percent(70)) add("amax_history_len", random_.between(1, 40));
    if (random_.in_percent(30))
      add("amax_compute_algo", random_.in_percent(50) ? "\"max\"" : "\"most_recent\"");
  }

  // Returns whether rows have scales of 128 columns, which blocks may share and dispatch may send.
  bool has_blocks() const { return !multiplies_bf16() && !has_end_scales(); }
  bool has_end_scales() const { return has_expert_scales_ || has_whole_scales_ || is_nv_; }

  // Chooses among the recipes that cast operands of wgrad from values, and the default.
  void choose_casts() {
    is_blockwise_ = random_.in_percent(50);
    is_mx_ = !is_blockwise_ && random_.in_percent(50);
    is_nv_ = !is_blockwise_ && !is_mx_ && random_.in_percent(60);
    if (is_blockwise_) add("recipe", "\"fp8_blockwise\"");
    if (is_mx_) add("recipe", "\"mxfp8\"");
    if (is_nv_) add("recipe", "\"nvfp4\"");
  }

  // Returns whether GEMMs multiply bf16.
  bool multiplies_bf16() const { return is_bf16_ || is_mx_ || is_nv_; }

  int64_t most_of_width() const {
    return size_ == LayerSize::kAny ? 65536 : size_ == LayerSize::kMedium ? 4096 : 640;
  }

  // Returns one of the usual sizes of models in half of the cases, else another multiple of 16,
  // rarely a wrong size.
  int64_t width() {
    constexpr int64_t kUsual[] = {16,   32,   64,   96,   128,  192,  256,  320,
                                  384,  400,  448,  512,  640,  768,  1024, 1408,
                                  1536, 2048, 2880, 4096, 5120, 7168, 14336};
    constexpr int64_t kWrong[] = {100, 1000, 50, 500};
    if (random_.in_percent(1)) return random_.pick(kWrong);
    int64_t width = 16 * random_.between(1, most_of_width() / 16);
    if (random_.in_percent(50))
      width = random_.pick(kUsual);
    else if (random_.in_percent(70))
      width = 16 * random_.between(1, 64);
    width = std::min(width, most_of_width());
    return is_mx_ ? std::max<int64_t>(width / 32 * 32, 32) : width;
  }

  void choose_sizes() {
    constexpr int64_t kUsual[] = {1, 2, 4, 8, 16, 32, 60, 64, 128, 256, 384, 512};
    const int64_t most = size_ == LayerSize::kAny ? 4096 : size_ == LayerSize::kMedium ? 32 : 6;
    experts_ = std::min(random_.in_percent(70)   ? random_.pick(kUsual)
                        : random_.in_percent(80) ? random_.between(1, 40)
                                                 : random_.between(1, 4096),
                        most);
    local_experts_ = experts_;
    add("experts", experts_);
    if (random_.in_percent(40)) {
      local_experts_ = random_.in_percent(50) ? std::max<int64_t>(1, experts_ / 8)
                                              : random_.between(1, experts_);
      add("local_experts", local_experts_);
    }
    top_k_ = random_.between(1, std::min<int64_t>(experts_, random_.in_percent(85) ? 10 : 40));
    add("top_k", top_k_);
    int64_t hidden = width();
    int64_t intermediate = width();
    // Limit that a machine has memory and time for.
    constexpr int64_t kMostElements = int64_t{1} << 24;
    while (size_ == LayerSize::kMedium && local_experts_ * hidden * intermediate > kMostElements)
      (hidden > intermediate ? hidden : intermediate) = std::max(hidden, intermediate) / 64 * 32;
    add("hidden", hidden);
    add("intermediate", intermediate);
    if (!has_blocks() && local_experts_ != experts_ && random_.in_percent(50))
      add("dispatch", "\"none\"");
    else if (has_blocks() && random_.in_percent(40))
      add("dispatch",
          random_.in_percent(50) || (is_blockwise_ && is_training_) ? "\"none\"" : "\"fp8\"");
  }

  void choose_activation() {
    constexpr const char* kPresets[] = {"swiglu", "clamped_swiglu", "geglu", "quick_geglu",
                                        "relu_squared"};
    bool has_gate = true;
    if (random_.in_percent(45)) {
      const std::string preset = random_.pick(kPresets);
      has_gate = preset != "relu_squared";
      add("activation", fmt::format("\"{}\"", preset));
    } else if (random_.in_percent(20)) {
      constexpr const char* kNumbers[] = {"0.5", "1.702", "7", "20.25"};
      const char* const limit = random_.pick(kNumbers);
      const char* const alpha = random_.pick(kNumbers);
      add("activation",
          fmt::format(R"({{"preset": "clamped_swiglu", "limit": {}, "alpha": {}, "offset": {}}})",
                      limit, alpha, random_.between(0, 2)));
    } else if (random_.in_percent(55)) {
      const std::string formula = random_formula(random_, size_ != LayerSize::kAny);
      has_gate = formula.find("gate") != std::string::npos;
      add("activation", fmt::format(R"({{"expression": "{}"}})", formula));
    }
    if (random_.in_percent(30)) {
      const bool is_interleaved = has_gate && random_.in_percent(60);
      add("gate_up_layout", is_interleaved                           ? "\"interleaved\""
                            : has_gate && (has_blocks() || is_bf16_) ? "\"separate\""
                                                                     : "\"concat\"");
    }
    if (random_.in_percent(30)) {
      has_biases_ = !has_end_scales() && random_.in_percent(50);
      add("biases", has_biases_ ? "true" : "false");
    }
  }

  void choose_passes() {
    if (is_training_)
      add("passes",
          random_.in_percent(90) ? R"(["forward", "backward"])" : R"(["backward", "forward"])");
    else if (random_.in_percent(40))
      add("passes", R"(["forward"])");
    if (random_.in_percent(40))
      add("recompute", random_.in_percent(70) ? "\"moe_expert\"" : "\"none\"");
    if (random_.in_percent(40))
      add("fuse_wgrad_accumulation", random_.in_percent(70) ? "true" : "false");
    if (random_.in_percent(40)) add("wgrad_dtype", random_.in_percent(70) ? "\"bf16\"" : "\"f32\"");
  }

  int64_t tokens() {
    constexpr int64_t kUsual[] = {1, 4, 16, 64, 100, 128, 512, 1000, 1024, 4096, 8192, 1048576};
    const int64_t most = size_ == LayerSize::kAny      ? 1048576
                         : size_ == LayerSize::kMedium ? 2048
                                                       : 96;
    if (random_.in_percent(60)) return std::min(random_.pick(kUsual), most);
    return random_.between(1, random_.in_percent(70) ? std::min<int64_t>(most, 5000) : most);
  }

  void choose_rows() {
    constexpr int64_t kAlignments[] = {1, 2, 8, 16, 32, 64, 100, 128, 256};
    int64_t alignment = 128;
    if (random_.in_percent(65)) {
      alignment = random_.in_percent(80) ? random_.pick(kAlignments) : random_.between(1, 4096);
      if (size_ != LayerSize::kAny) alignment = std::min<int64_t>(alignment, 512);
      if (is_mx_ && is_training_ && !random_.in_percent(2))
        alignment = 32 * random_.between(1, 8);
      else if (is_nv_ && !random_.in_percent(2))
        alignment = 16 * random_.between(1, 16);
      add("splits_alignment", alignment);
    }
    const int64_t tokens_of_call = tokens();
    add("max_tokens", tokens_of_call);
    const int64_t routed = tokens_of_call * top_k_;
    const int64_t worst = (routed + std::min(local_experts_, routed) * (alignment - 1)) / alignment;
    const bool is_given = random_.in_percent(30) || worst * alignment > INT32_MAX;
    if (is_given)
      add("max_permuted_rows",
          alignment * random_.between(1, std::min<int64_t>(std::max<int64_t>(worst, 1),
                                                           INT32_MAX / alignment)));
  }

  void choose_flags() {
    for (const char* key : {"fuse_activation", "fuse_transpose", "fuse_activation_transpose"})
      if (random_.in_percent(40)) add(key, flag());
  }

  void choose_routing() {
    if (random_.in_percent(35))
      add("topk_ids_dtype", random_.in_percent(80) ? "\"i64\"" : "\"i32\"");
    if (random_.in_percent(35))
      add("topk_probs_dtype", random_.in_percent(80) ? "\"bf16\"" : "\"f32\"");
    if (random_.in_percent(35))
      add("foreign_experts", random_.in_percent(80) ? "\"ignore\"" : "\"report\"");
  }

  // Comes last, so that a seed's layers keep their earlier fields.
  void choose_gradients() {
    if (!is_training_) return;
    if (random_.in_percent(40)) {
      std::vector<std::string> names;
      for (const char* name : {"dx", "dprobs", "dw1", "dw2", "db1", "db2"})
        if ((name[1] != 'b' || has_biases_) && random_.in_percent(50))
          names.push_back(fmt::format("\"{}\"", name));
      if (names.empty()) names.emplace_back("\"dx\"");
      if (random_.in_percent(30)) std::ranges::reverse(names);
      add("gradients", fmt::format("[{}]", fmt::join(names, ", ")));
    }
    if (random_.in_percent(30)) add("backward_halves", flag());
  }

  void choose_memory() {
    if (!is_training_) return;
    if (has_blocks() && random_.in_percent(25)) add("backward_quantizes_weights", flag());
    const bool has_halves = std::ranges::any_of(fields_, [](const std::string& field) {
      return field.starts_with("\"backward_halves\": true");
    });
    if (!has_halves && random_.in_percent(10)) add("backward_linears", flag());
  }

  void choose_shared() {
    if (local_experts_ != experts_ || !random_.in_percent(20)) return;
    const int64_t count = random_.between(1, size_ == LayerSize::kAny ? 8 : 2);
    add("shared", fmt::format(R"({{"experts": {}, "gate": {}}})", count, flag()));
  }

  // Leaves out what grouped rows do not have, and mostly the alignment too. A mistake in 100 stays.
  void take_grouped_rows() {
    std::vector<std::string_view> keys = {
        "top_k",    "local_experts",  "topk_ids_dtype", "topk_probs_dtype", "max_permuted_rows",
        "dispatch", "foreign_experts"};
    if (random_.in_percent(70)) keys.emplace_back("splits_alignment");
    if (random_.in_percent(1)) keys.pop_back();
    for (const std::string_view key : keys) leave_out(key);
    add("input", "\"grouped\"");
    if (random_.in_percent(50))
      add("tokens_per_expert_dtype", random_.in_percent(70) ? "\"i64\"" : "\"i32\"");
  }

  void leave_out(std::string_view key) {
    std::erase_if(fields_, [&](const std::string& field) {
      return field.starts_with(fmt::format("\"{}\": ", key));
    });
  }

  // Changes what a router excludes. A mistake in 100 stays.
  void add_router() {
    if (experts_ > 1024 || top_k_ > 32) return;
    add("router", random_router_of(random_, experts_, top_k_));
    leave_out("topk_probs_dtype");
    if (local_experts_ < experts_ && !random_.in_percent(1)) {
      leave_out("foreign_experts");
      add("foreign_experts", "\"ignore\"");
    }
    for (std::string& field : fields_)
      if (const size_t at = field.find("\"dprobs\""); at != std::string::npos)
        field.replace(at, 8, "\"dlogits\"");
  }

  std::string_view flag() { return random_.in_percent(50) ? "true" : "false"; }

  uint64_t seed_;
  SeededRandom random_;
  LayerSize size_;
  std::vector<std::string> fields_;
  bool is_bf16_ = false;
  bool is_blockwise_ = false;
  bool has_expert_scales_ = false;
  bool is_mx_ = false;
  bool is_nv_ = false;
  bool has_whole_scales_ = false;
  bool is_training_ = false;
  bool has_biases_ = false;
  int64_t experts_ = 1;
  int64_t local_experts_ = 1;
  int64_t top_k_ = 1;
};

}  // namespace

std::string random_layer(uint64_t seed, LayerSize size) { return LayerMaker(seed, size).json(); }

}  // namespace moejit::testing
