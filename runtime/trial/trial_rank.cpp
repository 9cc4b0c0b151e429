// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/trial_rank.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::trial {
namespace {

using compiler::TensorPlan;
using compiler::TensorRole;
using runtime::DeviceMemory;
using runtime::HostTensor;

std::vector<int64_t> shape_in_call(const TensorPlan& tensor, const compiler::CallDims& dims) {
  std::vector<int64_t> shape;
  for (const compiler::Dim& dim : tensor.shape) shape.push_back(size_in_call(dim, dims));
  return shape;
}

}  // namespace

Result<std::unique_ptr<TrialRank>> TrialRank::create(
    std::unique_ptr<runtime::PreparedPlan> prepared, runtime::Device& device,
    const compiler::CallDims& dims) {
  std::unique_ptr<TrialRank> rank(new TrialRank(std::move(prepared), device, dims));
  MOEJIT_TRY_ASSIGN(rank->layout_, compiler::MemoryLayout::make(rank->plan()));
  return rank;
}

Result<void> TrialRank::add(const TensorPlan& tensor, const HostTensor* content) {
  return tensors_.add(tensor.name, tensor.dtype, shape_in_call(tensor, dims_), content);
}

Result<void> TrialRank::finish(const compiler::MemorySizes& sizes) {
  MOEJIT_TRY_ASSIGN(workspace_, DeviceMemory::allocate(device_, sizes.workspace_bytes));
  MOEJIT_TRY_ASSIGN(saved_, DeviceMemory::allocate(device_, sizes.saved_bytes));
  MOEJIT_TRY_ASSIGN(deferred_, DeviceMemory::allocate(device_, sizes.deferred_bytes));
  memory_ = {.workspace = workspace_.address(),
             .workspace_bytes = sizes.workspace_bytes,
             .saved = saved_.address(),
             .saved_bytes = sizes.saved_bytes,
             .deferred = deferred_.address(),
             .deferred_bytes = sizes.deferred_bytes};
  for (const compiler::CallPlan& call : plan().calls) {
    std::vector<runtime::TensorRef>& refs = refs_.emplace_back();
    for (const compiler::CallTensor& taken : call.tensors)
      if (const std::string& name = plan().tensors[taken.slot].name; tensors_.has(name))
        refs.push_back(tensors_.ref(name));
  }
  return {};
}

Result<runtime::MemoryRegion> TrialRank::memory_of(const TensorPlan& tensor) const {
  if (tensors_.has(tensor.name)) {
    const runtime::TensorRef ref = tensors_.ref(tensor.name);
    int64_t bytes = size_bytes(tensor.dtype);
    for (const int64_t size : ref.shape) bytes *= size;
    return runtime::MemoryRegion{tensor.name, ref.data, bytes, true};
  }
  const DeviceMemory* const block = tensor.role == TensorRole::kWorkspace  ? &workspace_
                                    : tensor.role == TensorRole::kSaved    ? &saved_
                                    : tensor.role == TensorRole::kDeferred ? &deferred_
                                                                           : nullptr;
  if (block == nullptr)
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                fmt::format("tensor \"{}\" is not on the device", tensor.name));
  const auto in_plan = std::ranges::find(plan().tensors, tensor.name, &TensorPlan::name);
  const auto slot = static_cast<std::size_t>(in_plan - plan().tensors.begin());
  const compiler::CallLayout layout = layout_.at(dims_.tokens);
  return runtime::MemoryRegion{tensor.name,
                               static_cast<std::byte*>(block->address()) + layout.offset[slot],
                               layout.bytes[slot], true};
}

Result<void> TrialRank::copy_out(const TensorPlan& tensor, int64_t offset_bytes, void* destination,
                                 int64_t bytes) const {
  if (bytes == 0) return {};
  MOEJIT_TRY(device_.synchronize(nullptr));
  MOEJIT_TRY_ASSIGN(const runtime::MemoryRegion memory, memory_of(tensor));
  return device_.copy_to_host(destination,
                              static_cast<const std::byte*>(memory.address) + offset_bytes, bytes);
}

Result<int64_t> TrialRank::permuted_rows() const {
  const TensorPlan* const offs = compiler::find_tensor(plan(), "offs");
  if (offs == nullptr) return 0;
  const int64_t most = plan().bounds.max_permuted_rows;
  const int64_t last = offs->shape.front().value - 1;
  int32_t rows = 0;
  MOEJIT_TRY(copy_out(*offs, last * int64_t{sizeof(rows)}, &rows, sizeof(rows)));
  if (rows >= 0 && rows <= most) return rows;
  return fail(Stage::kLaunch, ErrorCode::kInternal,
              fmt::format("tensor \"offs\" ends with {}, wanted 0 to {}", rows, most));
}

Result<HostTensor> TrialRank::read(const TensorPlan& tensor) const {
  if (tensors_.has(tensor.name)) return tensors_.read(tensor.name);
  compiler::CallDims dims = layout_.at(dims_.tokens).dims;
  if (call_dim(tensor) == compiler::CallDim::kRows) {
    MOEJIT_TRY_ASSIGN(dims.rows, permuted_rows());
  }
  HostTensor host{tensor.dtype, shape_in_call(tensor, dims), {}};
  host.bytes.resize(
      static_cast<size_t>(runtime::element_count(host.shape) * compiler::size_bytes(tensor.dtype)));
  MOEJIT_TRY(copy_out(tensor, 0, host.bytes.data(), std::ssize(host.bytes)));
  return host;
}

}  // namespace moejit::trial
