// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <moejit/moejit_group.h>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

// One rank of a layer of a group, with the GPU of its number, as a host has it that calls the C
// interface: the memory of its tensors and blocks, and the records of its calls. All ranks are in
// this process. libcuda is what MOEJIT_CUDA_DRIVER says.
class GroupRank {
 public:
  // The calls of a step.
  enum class Pass { kWeights, kForward, kBackward };

  ~GroupRank();
  GroupRank(const GroupRank&) = delete;
  GroupRank& operator=(const GroupRank&) = delete;

  const compiler::Plan& plan() const { return plan_; }
  runtime::Device& device() { return *device_; }
  moejit_group* group() { return group_; }

  // Makes the calls that follow have T tokens, with the choices that the memory has. T is at most
  // max_tokens, which it is before.
  void set_tokens(int64_t tokens);
  // Makes a call and returns at once, as the function of the C interface does.
  moejit_error_code call(Pass pass);
  // Returns the kernels of a call, those of the other gradient mode left out.
  std::vector<const compiler::KernelPlan*> kernels(Pass pass) const;

 private:
  friend Result<std::vector<std::unique_ptr<GroupRank>>> open_group_ranks(std::string_view json,
                                                                          moejit_engine* engine,
                                                                          bool fills_memory);
  struct Call {
    moejit_call record{};
    std::vector<moejit_tensor> tensors;
  };
  GroupRank() = default;
  Result<void> open(std::string_view json, int32_t rank);
  Result<void> allocate(bool fills_memory);
  Result<void> join(const std::vector<std::unique_ptr<GroupRank>>& all, moejit_engine* engine);
  Result<void*> take(int64_t bytes, bool fills_memory);
  Result<void> choose_experts(void* topk_ids);
  void make_call(Pass pass);

  compiler::Plan plan_;
  std::unique_ptr<runtime::Device> device_;
  moejit_device* c_device_ = nullptr;
  moejit_plan* layer_ = nullptr;
  moejit_group* group_ = nullptr;
  void* group_memory_ = nullptr;
  void *workspace_ = nullptr, *saved_ = nullptr;
  std::vector<void*> allocated_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::map<std::string, DLTensor> tensors_;
  std::array<Call, 3> calls_;  // by Pass
};

// Opens all ranks of the layer that `json` describes, lets their GPUs reach each other, and
// prepares the layer on each with the engine. Choices are of different experts, evenly. With
// `fills_memory` all other tensors are zeros, else they are what was there. Errors: those of the C
// interface, as told by moejit_last_error().
Result<std::vector<std::unique_ptr<GroupRank>>> open_group_ranks(std::string_view json,
                                                                 moejit_engine* engine,
                                                                 bool fills_memory);

}  // namespace moejit::testing
