// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/unit/c_api/sim_layer.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <moejit/moejit_group.h>
#include <string>
#include <vector>

namespace moejit::testing {

inline constexpr int64_t kRanks = 2, kExperts = 4, kHidden = 144, kMaxTokens = 6;
inline constexpr std::array<int64_t, 2> kTokens = {5, 3};
using Bytes = std::vector<std::byte>;
using Tensors = std::map<std::string, Bytes>;

inline std::string json_of(int64_t max_tokens, std::string_view more) {
  return R"({"experts": 4, "top_k": 1, "hidden": 144, "intermediate": 80, "splits_alignment": 16,
             "dispatch": "fp8", "passes": ["forward", "backward"], "max_tokens": )" +
         std::to_string(max_tokens) + std::string(more) + "}";
}
inline std::string group_json() {
  return json_of(kMaxTokens, R"(, "expert_parallel": {"ranks": 2})");
}

// Tensors of calls in a device's memory.
class Calls {
 public:
  explicit Calls(moejit_device* device) : device_(device) {
    place_.struct_size = sizeof(place_);
    EXPECT_EQ(moejit_device_get_info(device, &place_), MOEJIT_OK);
    call_.struct_size = sizeof(call_);
  }
  ~Calls() {
    for (void* address : allocated_) EXPECT_EQ(moejit_device_release(device_, address), MOEJIT_OK);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // Adds a tensor of a call over T tokens, with its contents if `inputs` have it.
  void add(const moejit_tensor_info& info, int64_t tokens, const Tensors& inputs) {
    if (info.is_optional != 0 || info.role == MOEJIT_ROLE_SAVED ||
        info.role == MOEJIT_ROLE_WORKSPACE || info.role == MOEJIT_ROLE_DEFERRED)
      return;
    Tensor& tensor = tensors_[info.name];
    int64_t bytes = info.dtype.bits / 8;
    for (int32_t i = 0; i < info.ndim; ++i) {
      tensor.shape.push_back(std::string_view(info.symbols[i]) == "T" ? tokens : info.shape[i]);
      bytes *= tensor.shape.back();
    }
    tensor.bytes = bytes;
    tensor.dl = {.data = allocate(bytes),
                 .device = place_.dl_device,
                 .ndim = info.ndim,
                 .dtype = info.dtype,
                 .shape = tensor.shape.data(),
                 .strides = nullptr,
                 .byte_offset = 0};
    const auto content = inputs.find(info.name);
    if (content != inputs.end()) {
      ASSERT_EQ(std::ssize(content->second), bytes) << info.name;
      EXPECT_EQ(
          moejit_device_copy_to_device(device_, tensor.dl.data, content->second.data(), bytes),
          MOEJIT_OK);
    } else if (std::string_view(info.name) == "status") {
      EXPECT_EQ(moejit_device_fill(device_, tensor.dl.data, 0, bytes, nullptr), MOEJIT_OK);
    }
    refs_.push_back({tensors_.find(info.name)->first.c_str(), &tensor.dl});
  }
  void set_blocks(int64_t workspace_bytes, int64_t saved_bytes) {
    call_.workspace = allocate(workspace_bytes);
    call_.workspace_bytes = workspace_bytes;
    call_.saved = allocate(saved_bytes);
    call_.saved_bytes = saved_bytes;
  }
  const moejit_call* call() {
    call_.tensors = refs_.data();
    call_.tensor_count = refs_.size();
    return &call_;
  }
  Bytes read(const std::string& name) {
    const Tensor& tensor = tensors_.at(name);
    Bytes bytes(static_cast<std::size_t>(tensor.bytes));
    EXPECT_EQ(moejit_device_copy_to_host(device_, bytes.data(), tensor.dl.data, tensor.bytes),
              MOEJIT_OK);
    return bytes;
  }

 private:
  struct Tensor {
    DLTensor dl{};
    std::vector<int64_t> shape;
    int64_t bytes = 0;
  };
  void* allocate(int64_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(moejit_device_allocate(device_, bytes, &address), MOEJIT_OK);
    if (address != nullptr) allocated_.push_back(address);
    return address;
  }

  moejit_device* device_;
  moejit_device_info place_{};
  moejit_call call_{};
  std::map<std::string, Tensor> tensors_;
  std::vector<moejit_tensor> refs_;
  std::vector<void*> allocated_;
};

// The inputs of one rank with all tokens, four experts in turn.
inline Tensors all_inputs() {
  const int64_t tokens = kTokens[0] + kTokens[1];
  return {{"x", input_values("x", "BF16", tokens * kHidden)},
          {"dy", input_values("dy", "BF16", tokens * kHidden)},
          {"topk_ids", input_values("topk_ids", "I32", tokens)},
          {"topk_probs", input_values("topk_probs", "F32", tokens)},
          {"w1", input_values("w1", "BF16", kExperts * 160 * kHidden)},
          {"w2", input_values("w2", "BF16", kExperts * kHidden * 80)}};
}

// Returns the part of a tensor that rank 0 or rank 1 has.
inline Bytes part_of(const std::string& name, const Bytes& all, std::size_t rank) {
  const bool is_of_experts = name.starts_with("w") || name.starts_with("dw");
  const auto whole = std::ssize(all);
  const auto first = is_of_experts ? whole / 2 : whole * kTokens[0] / (kTokens[0] + kTokens[1]);
  return rank == 0 ? Bytes(all.begin(), all.begin() + first)
                   : Bytes(all.begin() + first, all.end());
}

// A group of two simulated ranks through the C interface. Tokens have one expert each, so that all
// results have the bits of one rank with all tokens.
class CApiGroup : public ::testing::Test {
 protected:
  virtual std::string described() const { return group_json(); }
  virtual moejit_error_code open(std::size_t rank) {
    return moejit_group_adopt(layers_[rank], devices_[rank], members_.data(), members_.size(),
                              &groups_[rank]);
  }
  void SetUp() override {
    const moejit_engine_options options = engine_options();
    ASSERT_EQ(moejit_engine_create(&options, &engine_), MOEJIT_OK);
    const std::string json = described();
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(moejit_group_layer_create(json.data(), json.size(), "sim",
                                          static_cast<int64_t>(rank), nullptr, &layers_[rank]),
                MOEJIT_OK)
          << moejit_last_error()->message;
      infos_[rank].struct_size = sizeof(infos_[rank]);
      ASSERT_EQ(moejit_plan_get_info(layers_[rank], &infos_[rank]), MOEJIT_OK);
    }
    void* memory[kRanks] = {};
    ASSERT_EQ(moejit_device_open_simulator_group(kRanks, infos_[0].memory_bytes, 1, devices_.data(),
                                                 memory),
              MOEJIT_OK);
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      members_[rank] = {memory[rank], infos_[rank].memory_bytes, infos_[rank].identity};
  }
  void TearDown() override {
    calls_ = {};
    for (moejit_group* group : groups_) moejit_group_destroy(group);
    for (moejit_plan* layer : layers_) moejit_plan_destroy(layer);
    for (moejit_device* device : devices_) moejit_device_destroy(device);
    moejit_engine_destroy(engine_);
  }
  void prepare() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(open(rank), MOEJIT_OK) << moejit_last_error()->message;
      ASSERT_EQ(moejit_plan_prepare_in_group(layers_[rank], engine_, groups_[rank]), MOEJIT_OK)
          << moejit_last_error()->message;
    }
  }
  std::unique_ptr<Calls> calls_of(std::size_t rank, const Tensors& inputs) {
    auto calls = std::make_unique<Calls>(devices_[rank]);
    Tensors own;
    for (const auto& [name, bytes] : inputs) own[name] = part_of(name, bytes, rank);
    for (std::size_t i = 0; i < infos_[rank].tensor_count; ++i) {
      moejit_tensor_info info = {};
      info.struct_size = sizeof(info);
      EXPECT_EQ(moejit_plan_get_tensor(layers_[rank], i, &info), MOEJIT_OK);
      if (info.offset < 0) calls->add(info, kTokens[rank], own);
    }
    calls->set_blocks(infos_[rank].workspace_bytes, infos_[rank].saved_bytes);
    return calls;
  }
  // Returns the results of one rank with all tokens.
  Tensors one_rank(const Tensors& inputs) {
    moejit_device* device = nullptr;
    moejit_plan* layer = nullptr;
    const std::string json = json_of(kRanks * kMaxTokens, "");
    EXPECT_EQ(moejit_device_open_simulator(nullptr, &device), MOEJIT_OK);
    EXPECT_EQ(moejit_plan_create(json.data(), json.size(), "sim", nullptr, &layer), MOEJIT_OK);
    EXPECT_EQ(moejit_plan_prepare(layer, engine_, device), MOEJIT_OK);
    moejit_plan_info layer_info = {};
    layer_info.struct_size = sizeof(layer_info);
    EXPECT_EQ(moejit_plan_get_info(layer, &layer_info), MOEJIT_OK);
    Tensors results;
    {
      Calls calls(device);
      for (std::size_t i = 0; i < layer_info.tensor_count; ++i) {
        moejit_tensor_info info = {};
        info.struct_size = sizeof(info);
        EXPECT_EQ(moejit_plan_get_tensor(layer, i, &info), MOEJIT_OK);
        calls.add(info, kTokens[0] + kTokens[1], inputs);
      }
      calls.set_blocks(layer_info.workspace_bytes, layer_info.saved_bytes);
      EXPECT_EQ(moejit_layer_update_weights(layer, calls.call()), MOEJIT_OK);
      EXPECT_EQ(moejit_layer_forward(layer, calls.call()), MOEJIT_OK)
          << moejit_last_error()->message;
      EXPECT_EQ(moejit_layer_backward(layer, MOEJIT_GRADIENT_OVERWRITE, calls.call()), MOEJIT_OK);
      for (const char* name : {"y", "dx", "dprobs", "dw1", "dw2"}) results[name] = calls.read(name);
    }
    moejit_plan_destroy(layer);
    moejit_device_destroy(device);
    return results;
  }

  // Runs a step on both ranks, and compares with one rank that has all tokens.
  void expect_bits_of_one_rank() {
    prepare();
    if (HasFatalFailure()) return;
    const Tensors inputs = all_inputs();
    for (std::size_t rank = 0; rank < kRanks; ++rank) calls_[rank] = calls_of(rank, inputs);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(moejit_layer_update_weights(layers_[rank], calls_[rank]->call()), MOEJIT_OK)
          << moejit_last_error()->message;
      ASSERT_EQ(moejit_layer_forward(layers_[rank], calls_[rank]->call()), MOEJIT_OK)
          << moejit_last_error()->message;
      ASSERT_EQ(
          moejit_layer_backward(layers_[rank], MOEJIT_GRADIENT_OVERWRITE, calls_[rank]->call()),
          MOEJIT_OK)
          << moejit_last_error()->message;
    }
    const Tensors wanted = one_rank(inputs);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      uint32_t status = 1;
      ASSERT_EQ(moejit_group_status(groups_[rank], &status), MOEJIT_OK)
          << moejit_last_error()->message;
      EXPECT_EQ(status, 0U);
      for (const auto& [name, bytes] : wanted)
        EXPECT_EQ(calls_[rank]->read(name), part_of(name, bytes, rank))
            << name << " of rank " << rank;
    }
  }

  moejit_engine* engine_ = nullptr;
  std::array<moejit_device*, kRanks> devices_{};
  std::array<moejit_plan*, kRanks> layers_{};
  std::array<moejit_plan_info, kRanks> infos_{};
  std::array<moejit_group_member, kRanks> members_{};
  std::array<moejit_group*, kRanks> groups_{};
  std::array<std::unique_ptr<Calls>, kRanks> calls_;
};

}  // namespace moejit::testing
