// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/exchanged_rank.h"

#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::ExchangeStep;
using compiler::TensorPlan;

// The steps of a dispatch to slots, or of a whole exchange with permuted rows, in either way.
std::vector<ExchangeStep> steps_of(const compiler::Exchange& exchange) {
  if (exchange.max_permuted_rows > 0)
    return {ExchangeStep::kChoices, ExchangeStep::kDispatchPermute,
            ExchangeStep::kRouteDispatchPermute, ExchangeStep::kCombineRows};
  return {ExchangeStep::kChoices, ExchangeStep::kDispatch, ExchangeStep::kAwait};
}

runtime::Engine& engine() {
  static const std::unique_ptr<runtime::Engine> kEngine = [] {
    auto made = make_test_engine();
    EXPECT_TRUE(succeeded(made));
    return std::move(*made);
  }();
  return *kEngine;
}

compiler::Plan plan_of(ExchangeStep step, const compiler::Exchange& exchange,
                       const compiler::Target& target) {
  auto plan = compiler::plan_exchange(step, exchange, target);
  EXPECT_TRUE(succeeded(plan));
  return std::move(*plan);
}

// Returns the rank in whose memory a tensor lies, from a name like "slots_1"; -1: it is private.
int32_t rank_of(const std::string& name) {
  const std::size_t at = name.rfind('_');
  if (at == std::string::npos || at + 2 != name.size() || name.back() < '0' || name.back() > '7')
    return -1;
  return name.back() - '0';
}

// Returns the offsets of the tensors that peers reach, and behind them the end.
std::map<std::string, int64_t> heap_offsets(compiler::Exchange exchange) {
  std::map<std::string, int64_t> offsets;
  int64_t end = 0;
  exchange.rank = 0;  // places are the same on all ranks
  for (const ExchangeStep step : steps_of(exchange))
    for (const TensorPlan& tensor : plan_of(step, exchange, {}).tensors) {
      if (rank_of(tensor.name) != 0) continue;
      const std::string name = tensor.name.substr(0, tensor.name.size() - 2);
      if (offsets.contains(name)) continue;
      offsets[name] = end;
      end += (tensor.bytes + 255) / 256 * 256;
    }
  offsets[""] = end;
  return offsets;
}

}  // namespace

int64_t ExchangedRank::heap_bytes(const compiler::Exchange& exchange) {
  return heap_offsets(exchange).at("");
}

ExchangedRank::ExchangedRank(Ranks& ranks, const compiler::Exchange& exchange)
    : ranks_(ranks), rank_(static_cast<int32_t>(exchange.rank)), exchange_(exchange) {
  for (const ExchangeStep step : steps_of(exchange)) {
    auto plan =
        std::make_shared<compiler::Plan>(plan_of(step, exchange, ranks.device(rank_).target()));
    add(*plan);
    auto prepared = runtime::PreparedPlan::prepare(plan, engine(), ranks.device(rank_));
    EXPECT_TRUE(succeeded(prepared));
    steps_[step] = std::move(*prepared);
  }
  set("epoch", std::vector<uint32_t>{0});
}

ExchangedRank::~ExchangedRank() {
  for (std::byte* address : allocated_)
    EXPECT_TRUE(succeeded(ranks_.device(rank_).release(address)));
}

void ExchangedRank::add(const compiler::Plan& plan) {
  const std::map<std::string, int64_t> offsets = heap_offsets(exchange_);
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensors_.contains(tensor.name)) continue;
    const int32_t of = rank_of(tensor.name);
    std::byte* address = nullptr;
    if (of >= 0) {
      const std::string name = tensor.name.substr(0, tensor.name.size() - 2);
      address = ranks_.heap(of) + offsets.at(name);
      if (of == rank_) tensors_[name] = {address, tensor.bytes};
    } else {
      address = place(tensor.name, tensor.bytes);
    }
    tensors_[tensor.name] = {address, tensor.bytes};
  }
}

std::byte* ExchangedRank::place(const std::string& name, int64_t bytes) {
  auto memory = ranks_.device(rank_).allocate(bytes);
  EXPECT_TRUE(succeeded(memory)) << name;
  allocated_.push_back(static_cast<std::byte*>(*memory));
  return allocated_.back();
}

void ExchangedRank::run(ExchangeStep step, int64_t tokens) {
  runtime::PreparedPlan& prepared = *steps_.at(step);
  std::vector<std::vector<int64_t>> shapes;
  std::vector<runtime::TensorRef> refs;
  shapes.reserve(prepared.plan().tensors.size());
  for (const TensorPlan& tensor : prepared.plan().tensors) {
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const compiler::Dim& dim : tensor.shape)
      shape.push_back(dim.symbol == "T" ? tokens : dim.value);
    refs.push_back({tensor.name, tensor.dtype, shape, tensors_.at(tensor.name).address});
  }
  ASSERT_TRUE(succeeded(prepared.call("run", refs, {}, nullptr)));
}

void ExchangedRank::write(const std::string& name, std::span<const std::byte> bytes) {
  const Memory& memory = tensors_.at(name);
  ASSERT_LE(std::ssize(bytes), memory.bytes) << name;
  ASSERT_TRUE(succeeded(
      ranks_.device(rank_).copy_to_device(memory.address, bytes.data(), std::ssize(bytes))));
}

std::vector<std::byte> ExchangedRank::read(const std::string& name) {
  const Memory& memory = tensors_.at(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(memory.bytes));
  EXPECT_TRUE(
      succeeded(ranks_.device(rank_).copy_to_host(bytes.data(), memory.address, memory.bytes)));
  return bytes;
}

}  // namespace moejit::testing
