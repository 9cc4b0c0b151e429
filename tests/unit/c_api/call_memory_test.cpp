// SPDX-License-Identifier: Apache-2.0
// Calls with few tokens take blocks that are no larger than they have to be, anywhere in memory,
// and give the bits that they give in blocks for max_tokens.
#include "tests/unit/c_api/sim_layer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>

namespace moejit::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kMostTokens = 96;

struct LayerCase {
  const char* name;
  const char* json;
};
constexpr char kFp8[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "splits_alignment": 16, "max_tokens": 96, "passes": ["forward", "backward"]})";
constexpr char kFp8Recompute[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 144,
  "splits_alignment": 128, "max_tokens": 96, "passes": ["forward", "backward"],
  "recompute": "moe_expert", "biases": true})";
constexpr char kBf16[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "recipe": "bf16", "splits_alignment": 64, "max_tokens": 96, "passes": ["forward", "backward"]})";
constexpr char kBf16Recompute[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 144,
  "recipe": "bf16", "splits_alignment": 64, "max_tokens": 96, "passes": ["forward", "backward"],
  "recompute": "moe_expert"})";

// Host memory at a multiple of 64 that is none of 128, full of a byte, between guards.
class GuardedBlock {
 public:
  GuardedBlock(int64_t bytes, int fill) : bytes_(static_cast<std::size_t>(bytes)) {
    memory_.reset(static_cast<std::byte*>(
        ::operator new (kBefore + bytes_ + kBehind, std::align_val_t{kAlignment})));
    std::memset(memory_.get(), kGuard, kBefore + bytes_ + kBehind);
    std::memset(address(), fill, bytes_);
  }
  void* address() { return memory_.get() + kBefore; }
  bool is_guarded() const {
    const auto is_guard = [](std::byte byte) { return byte == std::byte{kGuard}; };
    return std::all_of(memory_.get(), memory_.get() + kBefore, is_guard) &&
           std::all_of(memory_.get() + kBefore + bytes_, memory_.get() + kBefore + bytes_ + kBehind,
                       is_guard);
  }

 private:
  static constexpr std::size_t kAlignment = 256, kBefore = 64, kBehind = 4096;
  static constexpr unsigned char kGuard = 0x6d;
  struct Release {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Release> memory_;
};

std::map<std::string, Bytes> results_of(SimLayer& sim) {
  std::map<std::string, Bytes> results;
  for (const char* name : {"y", "status", "dx", "dprobs", "dw1", "dw2"})
    results[name] = sim.read(name);
  return results;
}

class CApiCallMemory : public ::testing::TestWithParam<LayerCase> {
 protected:
  void open(int64_t tokens) {
    sim_ = std::make_unique<SimLayer>();
    ASSERT_TRUE(is_ok(sim_->open(GetParam().json, tokens)));
    const moejit_call call = sim_->call();
    ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim_->layer(), &call)));
    sizes_.struct_size = sizeof(sizes_);
    ASSERT_TRUE(is_ok(moejit_plan_get_sizes(sim_->layer(), tokens, &sizes_)));
  }
  void forward(const moejit_call& call) {
    ASSERT_TRUE(is_ok(moejit_layer_forward(sim_->layer(), &call)));
  }
  void backward(const moejit_call& call) {
    ASSERT_TRUE(is_ok(moejit_layer_backward(sim_->layer(), MOEJIT_GRADIENT_OVERWRITE, &call)));
  }

  std::unique_ptr<SimLayer> sim_;
  moejit_plan_sizes sizes_{};
};

TEST_P(CApiCallMemory, NeedsTheBytesThatItTellsAndKnowsNoAddresses) {
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{7}, kMostTokens}) {
    SCOPED_TRACE(tokens);
    ASSERT_NO_FATAL_FAILURE(open(tokens));
    moejit_call call = sim_->call();
    ASSERT_NO_FATAL_FAILURE(forward(call));
    ASSERT_NO_FATAL_FAILURE(backward(call));
    const auto wanted = results_of(*sim_);

    GuardedBlock workspace(sizes_.workspace_bytes, 0xa5), saved(sizes_.saved_bytes, 0xa5);
    call.workspace = workspace.address();
    call.workspace_bytes = sizes_.workspace_bytes;
    call.saved = saved.address();
    call.saved_bytes = sizes_.saved_bytes;
    ASSERT_NO_FATAL_FAILURE(forward(call));

    // Backward finds neither block where forward had it.
    GuardedBlock other_workspace(sizes_.workspace_bytes, 0x5a), copy(sizes_.saved_bytes, 0);
    std::memcpy(copy.address(), saved.address(), static_cast<std::size_t>(sizes_.saved_bytes));
    std::memset(saved.address(), 0xff, static_cast<std::size_t>(sizes_.saved_bytes));
    std::memset(workspace.address(), 0xff, static_cast<std::size_t>(sizes_.workspace_bytes));
    call.workspace = other_workspace.address();
    call.saved = copy.address();
    ASSERT_NO_FATAL_FAILURE(backward(call));

    for (const auto& [name, bytes] : results_of(*sim_)) EXPECT_EQ(bytes, wanted.at(name)) << name;
    for (const GuardedBlock* block : {&workspace, &saved, &other_workspace, &copy})
      EXPECT_TRUE(block->is_guarded());
  }
}

TEST_P(CApiCallMemory, TellsTheLineThatSavedBytesFollow) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  moejit_plan_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_TRUE(is_ok(moejit_plan_get_info(sim_->layer(), &info)));
  for (int64_t tokens = 0; tokens <= kMostTokens; ++tokens) {
    ASSERT_TRUE(is_ok(moejit_plan_get_sizes(sim_->layer(), tokens, &sizes_)));
    EXPECT_EQ(
        sizes_.saved_bytes,
        std::min(info.saved_bytes, info.saved_fixed_bytes + tokens * info.saved_bytes_per_token));
  }
  EXPECT_EQ(sizes_.saved_bytes, info.saved_bytes);
  EXPECT_EQ(sizes_.workspace_bytes, info.workspace_bytes);
}

TEST_P(CApiCallMemory, RefusesTokensThatNoCallHas) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  for (const int64_t tokens : {int64_t{-1}, kMostTokens + 1}) {
    EXPECT_TRUE(is_error(moejit_plan_get_sizes(sim_->layer(), tokens, &sizes_),
                         MOEJIT_ERROR_INVALID_VALUE, "tiny", std::to_string(tokens),
                         "wanted 0 to 96"));
    moejit_tensor_place place = {};
    place.struct_size = sizeof(place);
    EXPECT_TRUE(is_error(moejit_plan_get_tensor_place(sim_->layer(), 0, tokens, &place),
                         MOEJIT_ERROR_INVALID_VALUE, std::to_string(tokens), "wanted 0 to 96"));
  }
}

// Forward leaves in the saved block where each token's rows are, and how many an expert has.
TEST_P(CApiCallMemory, HasTensorsWhereItTells) {
  ASSERT_NO_FATAL_FAILURE(open(7));
  const moejit_call call = sim_->call();
  ASSERT_NO_FATAL_FAILURE(forward(call));
  moejit_plan_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_TRUE(is_ok(moejit_plan_get_info(sim_->layer(), &info)));
  int32_t seen = 0;
  for (std::size_t i = 0; i < info.tensor_count; ++i) {
    moejit_tensor_info tensor = {};
    tensor.struct_size = sizeof(tensor);
    moejit_tensor_place place = {};
    place.struct_size = sizeof(place);
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor(sim_->layer(), i, &tensor)));
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor_place(sim_->layer(), i, 7, &place)));
    EXPECT_EQ(place.offset < 0, tensor.offset < 0) << tensor.name;
    EXPECT_LE(place.bytes, tensor.bytes) << tensor.name;
    if (std::string_view(tensor.name) == "row_map") {
      std::vector<int32_t> rows(14);
      ASSERT_EQ(place.bytes, 14 * 4);
      EXPECT_EQ(place.shape[0], 7);
      EXPECT_EQ(place.shape[1], 2);
      std::memcpy(rows.data(), static_cast<std::byte*>(call.saved) + place.offset, 14 * 4);
      // The first token's experts are 0 and 2, and every fifth choice is nobody's.
      EXPECT_EQ(rows[0], 0);
      EXPECT_GT(rows[1], 0);
      EXPECT_EQ(rows[4], -1);
      EXPECT_EQ(rows[9], -1);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 1);
}

INSTANTIATE_TEST_SUITE_P(Layers, CApiCallMemory,
                         ::testing::Values(LayerCase{"Fp8Flow", kFp8},
                                           LayerCase{"Fp8FlowRecompute", kFp8Recompute},
                                           LayerCase{"Bf16", kBf16},
                                           LayerCase{"Bf16Recompute", kBf16Recompute}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace moejit::testing
