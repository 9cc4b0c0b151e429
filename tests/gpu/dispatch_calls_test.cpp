// SPDX-License-Identifier: Apache-2.0
// Two ranks in one process whose host moves the rows itself: quantize on the rank of a token, an
// all-to-all, experts on the rank of its experts, and back. Equal bit for bit to one rank that has
// all tokens and all experts, forward and backward.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

namespace moejit::testing {
namespace {

using compiler::Layer;
using compiler::Plan;
using compiler::TensorPlan;
using runtime::PreparedPlan;
using runtime::TensorRef;

constexpr int64_t kRanks = 2, kExperts = 4, kLocalExperts = kExperts / kRanks, kTopK = 3;
constexpr int64_t kHidden = 272, kIntermediate = 144, kScales = (kHidden + 127) / 128;
constexpr int64_t kTokensOfRank[kRanks] = {37, 24};
constexpr int64_t kTokens = kTokensOfRank[0] + kTokensOfRank[1];

Layer layer_of(int64_t local_experts, int64_t top_k, int64_t max_tokens) {
  Layer layer{.name = "rank",
              .experts = kExperts,
              .local_experts = static_cast<int32_t>(local_experts),
              .top_k = static_cast<int32_t>(top_k),
              .hidden = kHidden,
              .intermediate = kIntermediate,
              .splits_alignment = 16,
              .max_tokens = max_tokens,
              .dispatch = compiler::Dispatch::kFp8,
              .dispatch_calls = true,
              .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

// The layer of the local experts, for rows that come in their order.
Layer grouped_layer(int64_t max_rows) {
  Layer layer = layer_of(kLocalExperts, 1, max_rows);
  layer.input = compiler::LayerInput::kGrouped;
  layer.experts = kLocalExperts;
  layer.splits_alignment = 1;
  layer.max_permuted_rows = max_rows;
  return layer;
}

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A layer on the test's device, whose tensors come from the host and go back to it.
class Rank {
 public:
  explicit Rank(const Layer& layer) {
    auto plan = plan_layer(layer, device().target());
    EXPECT_TRUE(succeeded(plan));
    auto prepared = PreparedPlan::prepare(*plan, *test_device().engine, device());
    EXPECT_TRUE(succeeded(prepared));
    layer_ = std::move(*prepared);
    workspace_ = allocate(layer_->plan().workspace_bytes);
    saved_ = allocate(layer_->plan().saved_bytes);
    for (const TensorPlan& tensor : layer_->plan().tensors)
      if (is_callers(tensor.role)) buffers_.emplace(tensor.name, allocate(tensor.bytes));
    set("status", Bytes(4));
  }

  PreparedPlan& layer() { return *layer_; }
  runtime::CallMemory memory() const {
    return {.workspace = workspace_->data(),
            .workspace_bytes = workspace_->bytes(),
            .saved = saved_->data(),
            .saved_bytes = saved_->bytes()};
  }
  void set(const std::string& name, const Bytes& bytes) {
    ASSERT_LE(static_cast<int64_t>(bytes.size()), buffers_.at(name).bytes()) << name;
    ASSERT_TRUE(succeeded(device().copy_to_device(buffers_.at(name).data(), bytes.data(),
                                                  static_cast<int64_t>(bytes.size()))));
  }
  // Returns the first `bytes` of a tensor; all, if negative.
  Bytes get(const std::string& name, int64_t bytes = -1) {
    const GuardedBuffer& buffer = buffers_.at(name);
    Bytes result(static_cast<std::size_t>(bytes < 0 ? buffer.bytes() : bytes));
    EXPECT_TRUE(succeeded(device().synchronize(nullptr)));
    EXPECT_TRUE(succeeded(
        device().copy_to_host(result.data(), buffer.data(), static_cast<int64_t>(result.size()))));
    return result;
  }
  // Returns the caller's tensors, as they are in a call over so many tokens.
  std::vector<TensorRef> tensors(int64_t tokens) {
    std::vector<TensorRef> refs;
    shapes_.clear();
    for (const TensorPlan& tensor : layer_->plan().tensors) {
      if (!is_callers(tensor.role) || tensor.is_optional) continue;
      std::vector<int64_t>& shape = shapes_[tensor.name];
      for (const compiler::Dim& dim : tensor.shape)
        shape.push_back(dim.symbol == "T" ? tokens : dim.value);
      refs.push_back({tensor.name, tensor.dtype, shape, buffers_.at(tensor.name).data()});
    }
    return refs;
  }

 private:
  static runtime::Device& device() { return *test_device().device; }
  static GuardedBuffer allocate(int64_t bytes) {
    auto buffer = GuardedBuffer::allocate(device(), std::max<int64_t>(bytes, 16));
    EXPECT_TRUE(succeeded(buffer));
    return std::move(*buffer);
  }

  std::unique_ptr<PreparedPlan> layer_;
  std::optional<GuardedBuffer> workspace_, saved_;
  std::map<std::string, GuardedBuffer> buffers_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

// Rows of a matrix [rows, columns] of elements of so many bytes.
Bytes rows_of(const Bytes& matrix, int64_t row_bytes, int64_t first, int64_t count) {
  const auto begin = matrix.begin() + first * row_bytes;
  return {begin, begin + count * row_bytes};
}

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// With true the ranks of the experts get grouped rows.
class DispatchCallsTest : public ::testing::TestWithParam<bool> {
 protected:
  // A choice of a token, which one row carries to the rank of its expert.
  struct Choice {
    int64_t home, token, k, expert;
  };
  static constexpr reference::LayerShape kShape{.experts = kExperts,
                                                .top_k = kTopK,
                                                .hidden = kHidden,
                                                .intermediate = kIntermediate,
                                                .alignment = 16};

  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    inputs_ = reference::random_inputs(kShape, kTokens, 11);
    dy_ = reference::random_activations(kTokens, kHidden, 12);
    for (int64_t home = 0, first = 0; home < kRanks; first += kTokensOfRank[home++])
      for (int64_t token = 0; token < kTokensOfRank[home]; ++token)
        for (int64_t k = 0; k < kTopK; ++k) {
          const int64_t expert = inputs_.topk_ids[(first + token) * kTopK + k];
          if (expert >= 0) sent_[expert / kLocalExperts].push_back({home, token, k, expert});
        }
    if (!GetParam()) return;
    for (std::vector<Choice>& choices : sent_)
      std::ranges::stable_sort(choices, {}, &Choice::expert);
  }

  static int64_t first_token(int64_t home) { return home == 0 ? 0 : kTokensOfRank[0]; }

  // All tokens and experts on one rank.
  void run_one_rank() {
    one_ = std::make_unique<Rank>(layer_of(kExperts, kTopK, kTokens));
    one_->set("w1", bytes_of(inputs_.w1));
    one_->set("w2", bytes_of(inputs_.w2));
    one_->set("x", bytes_of(inputs_.x));
    one_->set("topk_ids", bytes_of(inputs_.topk_ids));
    one_->set("topk_probs", bytes_of(inputs_.topk_probs));
    one_->set("dy", bytes_of(dy_));
    const auto tensors = one_->tensors(kTokens);
    ASSERT_TRUE(succeeded(one_->layer().call("update_weights", tensors, {}, nullptr)));
    ASSERT_TRUE(succeeded(one_->layer().call("forward", tensors, one_->memory(), nullptr)));
    ASSERT_TRUE(succeeded(one_->layer().call("backward", tensors, one_->memory(), nullptr)));
  }

  void make_ranks() {
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(GetParam()
                                                  ? grouped_layer(kTokens * kTopK)
                                                  : layer_of(kLocalExperts, 1, kTokens * kTopK)));
      const int64_t w1_bytes = 2 * 2 * kIntermediate * kHidden,
                    w2_bytes = 2 * kHidden * kIntermediate;
      const int64_t first = rank * kLocalExperts;
      ranks_[rank]->set("w1", rows_of(bytes_of(inputs_.w1), w1_bytes, first, kLocalExperts));
      ranks_[rank]->set("w2", rows_of(bytes_of(inputs_.w2), w2_bytes, first, kLocalExperts));
      ASSERT_TRUE(succeeded(
          ranks_[rank]->layer().call("update_weights", ranks_[rank]->tensors(0), {}, nullptr)));
    }
  }

  // Runs the call that quantizes the rows of `name` on the rank of each token, and hands out what
  // it made.
  void quantize(const std::string& name, const std::vector<uint16_t>& rows, const char* call) {
    for (int64_t home = 0; home < kRanks; ++home) {
      Rank& rank = *ranks_[home];
      const int64_t tokens = kTokensOfRank[home];
      rank.set(name, rows_of(bytes_of(rows), 2 * kHidden, first_token(home), tokens));
      ASSERT_TRUE(succeeded(rank.layer().call(call, rank.tensors(tokens), {}, nullptr)));
      codes_[home] = rank.get(name + "_q", tokens * kHidden);
      scales_[home] = rank.get(name + "_scale_inv", tokens * kScales * 4);
    }
  }

  // The all-to-all: each rank gets the rows of the choices of its experts, in the order of sent_.
  void dispatch(const std::string& name) {
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      Bytes codes, scales;
      for (const Choice& choice : sent_[rank]) {
        append(codes, rows_of(codes_[choice.home], kHidden, choice.token, 1));
        append(scales, rows_of(scales_[choice.home], 4 * kScales, choice.token, 1));
      }
      ranks_[rank]->set(name + "_q", codes);
      ranks_[rank]->set(name + "_scale_inv", scales);
    }
  }

  void dispatch_routing() {
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      std::vector<int32_t> ids;
      std::vector<float> probs;
      for (const Choice& choice : sent_[rank]) {
        ids.push_back(static_cast<int32_t>(choice.expert - rank * kLocalExperts));
        probs.push_back(
            inputs_.topk_probs[(first_token(choice.home) + choice.token) * kTopK + choice.k]);
      }
      if (GetParam()) {
        std::vector<int32_t> sizes(kLocalExperts);
        for (const int32_t id : ids) ++sizes[id];
        ranks_[rank]->set("tokens_per_expert", bytes_of(sizes));
      } else {
        ranks_[rank]->set("topk_ids", bytes_of(ids));
      }
      ranks_[rank]->set(GetParam() ? "probs" : "topk_probs", bytes_of(probs));
    }
  }

  // The all-to-all back: each token's rows by expert, and their sum on the token's rank.
  std::vector<uint16_t> combine(const std::string& name) {
    std::vector<uint16_t> returned;
    std::vector<int32_t> row_map(kTokens * kTopK, -1);
    struct Row {
      int64_t expert, rank, index, slot;
    };
    std::vector<Row> rows;
    for (int64_t rank = 0; rank < kRanks; ++rank)
      for (std::size_t i = 0; i < sent_[rank].size(); ++i) {
        const Choice& choice = sent_[rank][i];
        rows.push_back({choice.expert, rank, static_cast<int64_t>(i),
                        (first_token(choice.home) + choice.token) * kTopK + choice.k});
      }
    std::ranges::stable_sort(rows, {}, &Row::expert);
    for (const Row& row : rows) {
      row_map[row.slot] = static_cast<int32_t>(returned.size() / kHidden);
      const auto bytes = rows_of(ranks_[row.rank]->get(name), 2 * kHidden, row.index, 1);
      const auto values = values_of<uint16_t>(bytes);
      returned.insert(returned.end(), values.begin(), values.end());
    }
    return reference::unpermute(returned, row_map, kTokens, kTopK, kHidden);
  }

  std::vector<float> returned_dprobs() {
    std::vector<float> dprobs(kTokens * kTopK);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const auto of_rank = values_of<float>(ranks_[rank]->get("dprobs"));
      for (std::size_t i = 0; i < sent_[rank].size(); ++i) {
        const Choice& choice = sent_[rank][i];
        dprobs[(first_token(choice.home) + choice.token) * kTopK + choice.k] = of_rank[i];
      }
    }
    return dprobs;
  }

  int64_t received(int64_t rank) const { return static_cast<int64_t>(sent_[rank].size()); }

  reference::LayerInputs inputs_;
  std::vector<uint16_t> dy_;
  std::vector<Choice> sent_[kRanks];  // to each rank
  std::unique_ptr<Rank> one_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Bytes codes_[kRanks], scales_[kRanks];
};

TEST_P(DispatchCallsTest, GiveTheBitsOfOneRank) {
  ASSERT_NO_FATAL_FAILURE(run_one_rank());
  ASSERT_NO_FATAL_FAILURE(make_ranks());
  ASSERT_NO_FATAL_FAILURE(quantize("x", inputs_.x, "quantize"));
  dispatch("x");
  dispatch_routing();
  for (int64_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(succeeded(ranks_[rank]->layer().call(
        "experts", ranks_[rank]->tensors(received(rank)), ranks_[rank]->memory(), nullptr)));
  EXPECT_EQ(combine("y"), values_of<uint16_t>(one_->get("y")));

  // The rows of x that the experts had are theirs until backward is done, so dy comes in others.
  ASSERT_NO_FATAL_FAILURE(quantize("dy", dy_, "quantize_grad"));
  dispatch("dy");
  for (int64_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(succeeded(ranks_[rank]->layer().call(
        "experts_grad", ranks_[rank]->tensors(received(rank)), ranks_[rank]->memory(), nullptr)));
  EXPECT_EQ(combine("dx"), values_of<uint16_t>(one_->get("dx")));
  EXPECT_EQ(returned_dprobs(), values_of<float>(one_->get("dprobs")));
  for (const std::string name : {"dw1", "dw2"}) {
    Bytes both = ranks_[0]->get(name);
    append(both, ranks_[1]->get(name));
    EXPECT_EQ(values_of<float>(both), values_of<float>(one_->get(name))) << name;
  }
}

TEST_P(DispatchCallsTest, AreRefusedWithoutTheOption) {
  Layer layer = GetParam() ? grouped_layer(kTokens) : layer_of(kLocalExperts, 1, kTokens);
  layer.dispatch_calls = false;
  Rank rank(layer);
  const Result<void> result = rank.layer().call("quantize", rank.tensors(3), {}, nullptr);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(result.error().hint.find("dispatch_calls"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Inputs, DispatchCallsTest, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "grouped" : "tokens"; });

}  // namespace
}  // namespace moejit::testing
