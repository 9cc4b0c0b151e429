// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/kernel_call.h"

#include "compiler/param_record.h"
#include "runtime/launch/cta_count.h"
#include "runtime/launch/listed_memory.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <memory>

namespace moejit::runtime {
namespace {

using compiler::KernelArgument;
using compiler::KernelNumber;
using compiler::KernelPlan;
using compiler::Plan;
using compiler::TensorBox;
using compiler::TensorMapPlan;
using compiler::TensorPlan;

// Alignment of a record with tensor maps.
constexpr std::size_t kRecordAlignment = alignof(device::TensorMap);

tl::unexpected<Error> wrong_plan(const KernelPlan& kernel, std::string_view what,
                                 std::string_view name) {
  return fail(Stage::kLoad, ErrorCode::kInternal,
              fmt::format("the plan's kernel {} has {} {}", kernel.operation, what, name));
}

template <typename Value>
void put(std::span<std::byte> record, std::size_t offset, const Value& value) {
  std::memcpy(record.data() + offset, &value, sizeof(value));
}

// Returns the place of a role in the record, or null.
template <typename Place>
const Place* find_role(std::span<const Place> places, std::string_view role) {
  const auto place = std::ranges::find(places, role, &Place::role);
  return place == places.end() ? nullptr : &*place;
}

}  // namespace

Result<KernelCall> KernelCall::resolve(const Plan& plan, std::size_t index,
                                       std::unique_ptr<LoadedKernel> loaded,
                                       std::span<const GroupTensor> group) {
  const KernelPlan& kernel = plan.kernels[index];
  const compiler::ParamRecord& record = compiler::param_record(kernel.spec);
  KernelCall call;
  call.kernel_ = &kernel;
  call.loaded_ = std::move(loaded);
  call.record_bytes_ = record.bytes;
  call.reads_list_ = std::holds_alternative<compiler::MultiCastTransposeSpec>(kernel.spec);
  if (const auto taken = call.loaded_->param_bytes(); taken && *taken != record.bytes)
    return fail(Stage::kLoad, ErrorCode::kInternal,
                fmt::format("the machine code of kernel {} takes {} bytes of parameters, wanted {} "
                            "as this moejit lays them out",
                            kernel.operation, *taken, record.bytes));
  if (kernel.numbers.size() != record.numbers.size())
    return wrong_plan(kernel, "other numbers than its record:",
                      fmt::format("{} of {}", kernel.numbers.size(), record.numbers.size()));
  for (const KernelNumber& number : kernel.numbers) {
    const compiler::RecordNumber* const place = find_role(record.numbers, number.role);
    if (place == nullptr) return wrong_plan(kernel, "no parameter", number.role);
    if (number.dim) call.numbers_.push_back({place->offset, *number.dim});
    if (!number.dim) put(call.record_, place->offset, number.value);
  }
  const auto add = [&](std::string_view role, std::string_view name, const auto* place,
                       compiler::Access access, const TensorBox* box) -> Result<void> {
    if (place == nullptr) return wrong_plan(kernel, "no parameter", role);
    if (call.arguments_.size() == kMostArguments)
      return wrong_plan(kernel, "too many arguments, from", role);
    const auto tensor = std::ranges::find(plan.tensors, name, &TensorPlan::name);
    if (tensor == plan.tensors.end()) return wrong_plan(kernel, "no tensor", name);
    BoundMemory in_group;
    if (tensor->role == compiler::TensorRole::kGroup) {
      const auto placed = std::ranges::find(group, name, &GroupTensor::name);
      if (placed == group.end()) return wrong_plan(kernel, "no memory of a group for", name);
      in_group = {placed->address, tensor->bytes};
    }
    call.arguments_.push_back({.name = tensor->name,
                               .slot = static_cast<std::size_t>(tensor - plan.tensors.begin()),
                               .offset = place->offset,
                               .is_written = writes(access),
                               .box = box,
                               .dim = call_dim(*tensor),
                               .in_group = in_group});
    return {};
  };
  for (const KernelArgument& argument : kernel.arguments)
    MOEJIT_TRY(add(argument.role, argument.tensor, find_role(record.pointers, argument.role),
                   argument.access, nullptr));
  for (const TensorMapPlan& map : kernel.tensor_maps)
    MOEJIT_TRY(add(map.role, map.tensor, find_role(record.maps, map.role), map.access, &map.box));
  return call;
}

int64_t KernelCall::ctas(int64_t tokens, int32_t sm_count) const {
  return cta_count(*kernel_, tokens, sm_count);
}

const void* KernelCall::any_address(const BoundTensors& tensors) const {
  for (const Argument& argument : arguments_)
    if (tensors.address[argument.slot] != nullptr) return tensors.address[argument.slot];
  return nullptr;
}

Result<void> KernelCall::put_argument(const Argument& argument, const Device& device,
                                      const BoundTensors& tensors,
                                      std::span<std::byte> record) const {
  const void* address = memory_of(argument, tensors).address;
  if (argument.box == nullptr) {
    put(record, argument.offset, address);
    return {};
  }
  TensorBox box = *argument.box;
  if (box.call_dim >= 0 && argument.dim)
    box.dims[static_cast<std::size_t>(box.call_dim)] =
        std::max<int64_t>(tensors.dims.size(*argument.dim), 1);
  if (tensors.bytes[argument.slot] == 0) address = any_address(tensors);
  MOEJIT_TRY_ASSIGN(const device::TensorMap map, device.encode_tensor_map(box, address));
  put(record, argument.offset, map);
  return {};
}

Result<void> KernelCall::launch(Device& device, const BoundTensors& tensors, Stream stream) const {
  const int64_t cta_count = ctas(tensors.dims.tokens, device.sm_count());
  if (cta_count == 0) return {};
  alignas(kRecordAlignment) Record record;  // only its first bytes are used
  std::memcpy(record.data(), record_.data(), record_bytes_);
  for (const Number& number : numbers_) put(record, number.offset, tensors.dims.size(number.dim));
  // Every launch comes by here: only the regions that the kernel has are made.
  alignas(MemoryRegion) std::array<std::byte, kMostArguments * sizeof(MemoryRegion)> storage;
  auto* const regions = reinterpret_cast<MemoryRegion*>(storage.data());
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    MOEJIT_TRY(put_argument(argument, device, tensors, record));
    const BoundMemory memory = memory_of(argument, tensors);
    std::construct_at(regions + i, MemoryRegion{.name = argument.name,
                                                .address = memory.address,
                                                .bytes = memory.bytes,
                                                .writable = argument.is_written});
  }
  LaunchRequest request{.kernel = loaded_.get(),
                        .ctas = cta_count,
                        .threads = kernel_->launch.threads,
                        .shared_bytes = kernel_->launch.shared_bytes,
                        .params = std::span(record).first(record_bytes_),
                        .regions = std::span(regions, arguments_.size())};
  if (!reads_list_ || !device.is_host_memory()) return device.launch(request, stream);
  std::vector<MemoryRegion> all = listed_memory(*kernel_, regions->address);
  all.insert(all.end(), request.regions.begin(), request.regions.end());
  request.regions = all;
  return device.launch(request, stream);
}

}  // namespace moejit::runtime
