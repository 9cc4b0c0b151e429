// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/operation_session.h"

#include "runtime/trial/cast_transpose_list.h"

namespace moejit::trial {

using runtime::HostTensor;
using runtime::TensorMap;

using compiler::OperationPlan;
using compiler::TensorPlan;

namespace {

const HostTensor* find(const TensorMap& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? nullptr : &found->second;
}

}  // namespace

Result<std::unique_ptr<OperationSession>> OperationSession::create(const OperationPlan& plan,
                                                                   runtime::Engine& engine,
                                                                   runtime::Device& device,
                                                                   const OperationCall& call,
                                                                   bool tells_clock) {
  std::unique_ptr<OperationSession> session(new OperationSession(device));
  MOEJIT_TRY_ASSIGN(session->prepared_, runtime::PreparedPlan::prepare(
                                            std::make_shared<OperationPlan>(plan), engine, device));
  if (const auto* list = std::get_if<compiler::MultiCastTransposeOperation>(&plan.operation)) {
    MOEJIT_TRY_ASSIGN(session->written_, add_list(*list, call.inputs, session->tensors_));
  } else {
    for (const TensorPlan& tensor : plan.tensors) {
      const HostTensor* const content = find(call.inputs, tensor.name);
      const bool is_written = tensor.role == compiler::TensorRole::kOutput;
      if (content == nullptr && !is_written) continue;  // optional
      if (tensor.name == "elapsed" && !tells_clock) continue;
      std::vector<int64_t> shape;
      for (const compiler::Dim& dim : tensor.shape) shape.push_back(size_in_call(dim, call.dims));
      MOEJIT_TRY(session->tensors_.add(tensor.name, tensor.dtype, std::move(shape), content));
      if (is_written) session->written_.push_back(tensor.name);
    }
  }
  for (const TensorPlan& tensor : plan.tensors)
    if (session->tensors_.has(tensor.name))
      session->refs_.push_back(session->tensors_.ref(tensor.name));
  MOEJIT_TRY_ASSIGN(session->workspace_,
                    runtime::DeviceMemory::allocate(device, plan.workspace_bytes));
  session->memory_ = {.workspace = session->workspace_.address(),
                      .workspace_bytes = plan.workspace_bytes};
  return session;
}

Result<void> OperationSession::run(runtime::LaunchObserver* observer) {
  return prepared_->call("run", refs_, memory_, nullptr, observer);
}

Result<TensorMap> OperationSession::results() const {
  TensorMap results;
  for (const std::string& name : written_) {
    MOEJIT_TRY_ASSIGN(results[name], tensors_.read(name));
  }
  return results;
}

}  // namespace moejit::trial
