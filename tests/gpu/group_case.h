// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/group_plan.h"
#include "runtime/check/check_group.h"
#include "runtime/trial/trial.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moejit::testing {

// A small layer on a group of ranks: experts, top_k and max_tokens (of a rank) may be changed, then
// completed() sets what follows from them.
compiler::Layer group_layer(int32_t ranks);
// Returns the same with 16 experts, of which a token has five: enough for eight ranks.
compiler::Layer group_layer_of_many(int32_t ranks);
compiler::Layer completed(compiler::Layer layer);
// Returns the layer with a recipe, bf16 rows on the wire, and the experts and sizes of
// recipe_rows_test.cpp, so that what one rank runs are kernels that are compiled for that test.
compiler::Layer with_recipe(compiler::Layer layer, const compiler::Recipe& recipe);

// Sets ids, [tokens * top_k] of all ranks in turn, before they are uploaded.
using SetIds = std::function<void(std::vector<int64_t>& ids)>;

// A layer on a group of the test's target, and the same on one rank with all tokens.
class GroupCase {
 public:
  // Opens ranks, or tells `why_not` where there are not as many GPUs. `tokens` has T of each rank.
  static std::unique_ptr<GroupCase> open(const compiler::Layer& layer, std::vector<int64_t> tokens,
                                         std::string& why_not, uint64_t seed = 1,
                                         const SetIds& set_ids = {}, int64_t timeout_ms = 10000);

  trial::Trial& session() { return *session_; }
  trial::Devices& devices() { return *devices_; }
  // Runs forward, and backward if the layer has it, on all ranks; returns their status words.
  std::vector<uint32_t> run();
  // Expects the results of all ranks to be what one rank makes of all tokens, bit for bit.
  void expect_bits_of_one_rank();
  // Returns the results of each rank.
  std::vector<runtime::TensorMap> results();
  // Expects that the results of all ranks are what files FOLDER/RANK.TENSOR hold, which processes
  // have saved.
  void expect_files(const std::filesystem::path& folder);
  // Returns what one rank makes of all tokens, with its intermediates.
  const runtime::TensorMap& one_rank();
  const runtime::TensorMap& inputs() const { return inputs_; }

 private:
  GroupCase() = default;
  // Returns how many tensors a rank makes: y, and of layers with backward the gradients.
  std::size_t results_of_rank() const;

  compiler::Layer layer_;
  std::vector<int64_t> tokens_;
  runtime::TensorMap inputs_, one_rank_;
  std::unique_ptr<trial::Devices> devices_;
  std::unique_ptr<trial::Trial> session_;
};

}  // namespace moejit::testing
