// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/kernel_call.h"

#include "runtime/launch/cta_count.h"
#include "runtime/launch/param_records.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {
namespace {

using compiler::KernelArgument;
using compiler::KernelPlan;
using compiler::Plan;
using compiler::TensorPlan;

tl::unexpected<Error> wrong_plan(const KernelPlan& kernel, std::string_view what,
                                 std::string_view name) {
  return fail(Stage::kLoad, ErrorCode::kInternal,
              fmt::format("the plan's kernel {} has {} {}", kernel.operation, what, name));
}

template <typename Value>
void put(std::span<std::byte> record, std::size_t offset, Value value) {
  std::memcpy(record.data() + offset, &value, sizeof(value));
}

}  // namespace

Result<KernelCall> KernelCall::resolve(const Plan& plan, std::size_t index,
                                       std::unique_ptr<LoadedKernel> loaded) {
  const KernelPlan& kernel = plan.kernels[index];
  const ParamRecord record = param_record(kernel.spec, plan.layer);
  KernelCall call;
  call.kernel_ = &kernel;
  call.layer_ = &plan.layer;
  call.loaded_ = std::move(loaded);
  call.record_bytes_ = record.bytes;
  for (std::size_t i = 0; i < record.number_count; ++i) {
    const RecordNumber& number = record.numbers[i];
    if (number.value) put(call.record_, number.offset, *number.value);
    if (!number.value) call.tokens_offset_ = static_cast<std::ptrdiff_t>(number.offset);
  }
  if (kernel.arguments.size() > kMostArguments)
    return wrong_plan(kernel, "too many arguments, from", kernel.arguments[kMostArguments].role);
  for (const KernelArgument& argument : kernel.arguments) {
    const auto pointer = std::ranges::find(record.pointers, argument.role, &RecordPointer::role);
    if (pointer == record.pointers.end()) return wrong_plan(kernel, "no parameter", argument.role);
    const auto tensor = std::ranges::find(plan.tensors, argument.tensor, &TensorPlan::name);
    if (tensor == plan.tensors.end()) return wrong_plan(kernel, "no tensor", argument.tensor);
    call.arguments_.push_back({.name = tensor->name,
                               .slot = static_cast<std::size_t>(tensor - plan.tensors.begin()),
                               .offset = pointer->offset,
                               .is_written = pointer->is_written});
  }
  return call;
}

int64_t KernelCall::ctas(int64_t tokens, int32_t sm_count) const {
  return cta_count(*kernel_, *layer_, tokens, sm_count);
}

Result<void> KernelCall::launch(Device& device, const BoundTensors& tensors, Stream stream) const {
  const int64_t cta_count = ctas(tensors.tokens, device.sm_count());
  if (cta_count == 0) return {};
  alignas(16) Record record = record_;
  if (tokens_offset_ >= 0) put(record, static_cast<std::size_t>(tokens_offset_), tensors.tokens);
  std::array<MemoryRegion, kMostArguments> regions;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    put(record, argument.offset, tensors.address[argument.slot]);
    regions[i] = {.name = argument.name,
                  .address = tensors.address[argument.slot],
                  .bytes = tensors.bytes[argument.slot],
                  .writable = argument.is_written};
  }
  return device.launch({.kernel = loaded_.get(),
                        .ctas = cta_count,
                        .threads = kernel_->launch.threads,
                        .shared_bytes = kernel_->launch.shared_bytes,
                        .params = std::span(record).first(record_bytes_),
                        .regions = std::span(regions).first(arguments_.size())},
                       stream);
}

}  // namespace moejit::runtime
