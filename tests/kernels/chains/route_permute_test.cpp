// SPDX-License-Identifier: Apache-2.0
// Route and a chain that permutes rows in one kernel: it writes the bytes that the two kernels
// write.
#include "compiler/kernels/route_permute.h"

#include "runtime/reference/casts.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/route_permute_params.h"
#include "tests/kernels/chains/chain_runner.h"

#include <map>

namespace moejit::testing {
namespace {

using compiler::QuantizeStage;
using compiler::RoutePermuteSpec;
using compiler::RowChainSpec;
using compiler::StoreStage;

class RoutePermuteKernel : public Chains {
 protected:
  struct Call {
    int64_t tokens = 0;
    int64_t max_rows = 0;  // 0: enough for all rows
    bool has_bad_ids = false;
  };

  // Runs the two kernels and the joined one on the same inputs, and compares every byte.
  void expect_same_bytes(const RoutePermuteSpec& spec, const Call& call, int64_t ctas) {
    SCOPED_TRACE(call.tokens);
    make_inputs(spec, call);
    const Bytes apart = run_on(spec, call, ctas, false), joined = run_on(spec, call, ctas, true);
    ASSERT_EQ(apart.size(), joined.size());
    for (const auto& [name, bytes] : apart) EXPECT_EQ(joined.at(name), bytes) << name;
    EXPECT_NE(apart.at("counts"), std::vector<uint8_t>(apart.at("counts").size(), kUntouched));
  }

  static RoutePermuteSpec spec_of(RowChainSpec rows, int32_t alignment) {
    rows = with_whole_rows(rows);
    return {{.local_experts = rows.local_experts,
             .top_k = rows.top_k,
             .splits_alignment = alignment,
             .warps = rows.threads / 32},
            rows};
  }

 private:
  using Bytes = std::map<std::string, std::vector<uint8_t>>;

  void make_inputs(const RoutePermuteSpec& spec, const Call& call) {
    const compiler::RouteSpec& route = spec.route;
    const auto seed = static_cast<uint64_t>(call.tokens) + 1;
    ids_ = reference::random_routing(call.tokens, route.local_experts, route.top_k, {seed},
                                     {.unrouted_share = 0.2, .may_repeat = true});
    if (call.has_bad_ids) {
      ids_.front() = -2;
      ids_.back() = route.local_experts;
    }
    x_ = reference::random_activations(call.tokens, spec.rows.columns, seed + 1);
    probs_ = reference::random_probs(call.tokens, route.top_k, seed + 2);
    if (!probs_.empty()) probs_.front() = 0.0f;
    rows_ = call.max_rows;
    if (rows_ == 0)
      rows_ = reference::enough_rows(call.tokens, {.experts = route.local_experts,
                                                   .top_k = route.top_k,
                                                   .alignment = route.splits_alignment});
  }

  Bytes run_on(const RoutePermuteSpec& spec, const Call& call, int64_t ctas, bool is_joined) {
    const int64_t experts = spec.route.local_experts, columns = spec.rows.columns;
    const bool is_i64 = spec.route.topk_ids == compiler::DType::kI64;
    const DeviceBuffer ids = is_i64
                                 ? input("topk_ids", std::vector<int64_t>(ids_.begin(), ids_.end()))
                                 : input("topk_ids", ids_);
    const DeviceBuffer x = input("x", x_), probs = input("topk_probs", probs_);
    const DeviceBuffer counts = output<int32_t>("counts", experts),
                       offs = output<int32_t>("offs", experts + 1),
                       row_map = output<int32_t>("row_map", call.tokens * spec.route.top_k),
                       status = output<uint32_t>("status", 1),
                       saved_tokens = output<int64_t>("saved_tokens", 1),
                       rows = output<uint16_t>("rows", rows_ * columns),
                       scales = output<float>("scales", rows_ * ((columns + 127) / 128)),
                       row_probs = output<float>("row_probs", rows_),
                       row_tokens = output<int32_t>("row_tokens", rows_),
                       kept = output<uint16_t>("kept", call.tokens * columns),
                       kept_scales =
                           output<float>("kept_scales", call.tokens * ((columns + 127) / 128));
    fill(status, 0x40);
    device::RoutePermuteParams params{.route = {.topk_ids = ids.as<const void>(),
                                                .counts = counts.as<int32_t>(),
                                                .offs = offs.as<int32_t>(),
                                                .row_map = row_map.as<int32_t>(),
                                                .status = status.as<uint32_t>(),
                                                .tokens = call.tokens,
                                                .max_rows = rows_,
                                                .saved_tokens = saved_tokens.as<int64_t>()},
                                      .rows = {.input = x.as<const void>(),
                                               .probs = probs.as<const void>(),
                                               .output = rows.as<void>(),
                                               .output_scale_inv = scales.as<float>(),
                                               .output_probs = row_probs.as<float>(),
                                               .row_tokens = row_tokens.as<int32_t>(),
                                               .kept_output = kept.as<void>(),
                                               .kept_scale_inv = kept_scales.as<float>(),
                                               .rows = call.tokens}};
    const std::vector<const DeviceBuffer*> routed = {&ids,     &counts, &offs,
                                                     &row_map, &status, &saved_tokens};
    std::vector<const DeviceBuffer*> moved = {&x,         &probs,      &rows, &scales,
                                              &row_probs, &row_tokens, &kept, &kept_scales};
    if (is_joined) {
      moved.insert(moved.end(), routed.begin(), routed.end());
      run(spec, ctas, params, moved);
    } else {
      run(spec.route, 1, params.route, routed);
      params.rows.row_map = params.route.row_map;
      params.rows.counts = params.route.counts;
      params.rows.offs = params.route.offs;
      moved.insert(moved.end(), {&row_map, &counts, &offs});
      run(spec.rows, ctas, params.rows, moved);
    }
    Bytes all;
    for (const DeviceBuffer* one : {&counts, &offs, &row_map, &status, &saved_tokens, &rows,
                                    &scales, &row_probs, &row_tokens, &kept, &kept_scales})
      all[std::string(one->region().name)] = one->download<uint8_t>();
    return all;
  }

  std::vector<int32_t> ids_;
  std::vector<uint16_t> x_;
  std::vector<float> probs_;
  int64_t rows_ = 0;
};

const RowChainSpec kBf16{.quantize = QuantizeStage::kKeep,
                         .store = StoreStage::kPermuted,
                         .columns = 272,
                         .local_experts = 40,
                         .top_k = 8};

TEST_F(RoutePermuteKernel, WritesTheBytesOfTwoKernels) {
  const RoutePermuteSpec spec = spec_of(kBf16, 1);
  const int64_t most = compiler::kMostChoicesToRoute / spec.route.top_k;
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{40}, most})
    expect_same_bytes(spec, {tokens}, tokens < 40 ? 2 : 21);
  expect_same_bytes(spec, {.tokens = 40, .max_rows = 200}, 3);
  expect_same_bytes(spec, {.tokens = 5, .has_bad_ids = true}, 3);
}

TEST_F(RoutePermuteKernel, WritesPadRowsAndQuantizedRows) {
  RowChainSpec rows = kBf16;
  rows.quantize = QuantizeStage::k1x128;
  rows.store = StoreStage::kRowsAndPermuted;
  rows.local_experts = 7;
  rows.top_k = 11;  // more than a segment has lanes
  rows.tells_tokens = true;
  RoutePermuteSpec spec = spec_of(rows, 16);
  spec.route.topk_ids = compiler::DType::kI64;
  spec.route.ignores_foreign = true;
  for (const int64_t tokens : {0, 1, 40}) expect_same_bytes(spec, {tokens}, 3);
  expect_same_bytes(spec, {.tokens = 5, .has_bad_ids = true}, 3);
  expect_same_bytes(spec, {.tokens = 40, .max_rows = 64}, 3);
}

TEST_F(RoutePermuteKernel, ScalesWholeRows) {
  RowChainSpec rows = kBf16;
  rows.quantize = QuantizeStage::kRow;
  rows.columns = 1296;
  rows.epsilon = reference::kRowEps;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    open(seed);
    for (const int64_t tokens : {1, 40}) expect_same_bytes(spec_of(rows, 4), {tokens}, 5);
  }
}

}  // namespace
}  // namespace moejit::testing
