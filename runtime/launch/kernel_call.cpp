// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/kernel_call.h"

#include "compiler/launch.h"
#include "runtime/launch/host_readable.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <utility>

namespace moejit::runtime {

int64_t cta_count(const compiler::KernelPlan& kernel, int64_t tokens, int32_t sm_count) {
  const int64_t busy = compiler::busy_ctas(kernel.spec, kernel.bounds,
                                           kernel.has_slots ? kernel.bounds.max_tokens : tokens);
  if (kernel.launch.ctas_per_sm == 0) return busy;
  const int64_t cluster = kernel.launch.cluster_ctas;
  const int64_t held = int64_t{kernel.launch.ctas_per_sm} * sm_count / cluster * cluster;
  return std::min(busy, std::max(held, cluster));
}

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
                                       std::span<std::byte* const> group) {
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
      std::byte* const address = address_in_group(*tensor, group);
      if (address == nullptr) return wrong_plan(kernel, "no memory of a group for", name);
      in_group = {address, tensor->bytes};
    }
    const auto slot = static_cast<std::size_t>(tensor - plan.tensors.begin());
    if (box != nullptr) {
      const bool follows = box->call_dim >= 0;
      call.maps_.push_back({.offset = place->offset,
                            .argument = call.arguments_.size(),
                            .box = box,
                            .dim = follows ? call_dim(*tensor) : std::nullopt});
    } else if (in_group.address != nullptr) {
      put(call.record_, place->offset, in_group.address);
    } else {
      call.pointers_.push_back({.offset = place->offset, .slot = slot});
    }
    call.arguments_.push_back(
        {.name = tensor->name, .slot = slot, .is_written = writes(access), .in_group = in_group});
    return {};
  };
  for (const KernelArgument& argument : kernel.arguments)
    MOEJIT_TRY(add(argument.role, argument.tensor, find_role(record.pointers, argument.role),
                   argument.access, nullptr));
  for (const TensorMapPlan& map : kernel.tensor_maps)
    MOEJIT_TRY(add(map.role, map.tensor, find_role(record.maps, map.role), map.access, &map.box));
  call.kept_ = std::make_unique<KeptMaps>();
  call.kept_->maps.resize(call.maps_.size());
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

Result<void> KernelCall::renew(KeptMap& map, const Map& place, const Device& device,
                               const BoundTensors& tensors) const {
  const Argument& argument = arguments_[place.argument];
  const void* address = memory_of(argument, tensors).address;
  if (tensors.bytes[argument.slot] == 0 && argument.in_group.address == nullptr)
    address = any_address(tensors);
  const int64_t size = place.dim ? std::max<int64_t>(tensors.dims.size(*place.dim), 1) : 0;
  if (address != nullptr && map.address == address && map.size == size) return {};
  TensorBox box = *place.box;
  if (place.dim) box.dims[static_cast<std::size_t>(box.call_dim)] = size;
  MOEJIT_TRY_ASSIGN(map.map, device.encode_tensor_map(box, address));
  map.address = address;
  map.size = size;
  return {};
}

Result<void> KernelCall::put_maps(const Device& device, const BoundTensors& tensors,
                                  std::span<std::byte> record) const {
  if (maps_.empty()) return {};
  const auto put_map = [&](KeptMap& map, const Map& place) -> Result<void> {
    MOEJIT_TRY(renew(map, place, device, tensors));
    put(record, place.offset, map.map);
    return {};
  };
  const Turn turn(kept_->is_taken);
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    if (turn.is_owner()) {
      MOEJIT_TRY(put_map(kept_->maps[i], maps_[i]));
    } else {
      KeptMap own;
      MOEJIT_TRY(put_map(own, maps_[i]));
    }
  }
  return {};
}

Result<void> KernelCall::launch_in_regions(const LaunchPlace& place, const BoundTensors& tensors,
                                           LaunchRequest& request, LaunchBefore& before) const {
  std::vector<MemoryRegion> regions;
  if (reads_list_ && place.device.is_host_memory())
    regions = listed_memory(*kernel_, memory_of(arguments_.front(), tensors).address);
  for (const Argument& argument : arguments_) {
    const BoundMemory memory = memory_of(argument, tensors);
    regions.push_back({.name = argument.name,
                       .address = memory.address,
                       .bytes = memory.bytes,
                       .writable = argument.is_written});
  }
  request.regions = regions;
  request.regions_before = before.regions;
  MOEJIT_TRY(place.device.launch(request, place.stream));
  before.regions = std::move(regions);
  return {};
}

Result<void> KernelCall::launch(const LaunchPlace& place, const BoundTensors& tensors,
                                LaunchBefore& before) const {
  const int64_t cta_count = ctas(tensors.dims.tokens, place.device.sm_count());
  // Without this kernel nobody waits for the one before on behalf of the one behind.
  const bool overlaps = std::exchange(before.overlaps, kernel_->launch.overlaps && cta_count > 0) &&
                        kernel_->launch.overlaps;
  if (cta_count == 0) return {};
  alignas(kRecordAlignment) Record record;  // only its first bytes are used
  std::memcpy(record.data(), record_.data(), record_bytes_);
  for (const Number& number : numbers_) put(record, number.offset, tensors.dims.size(number.dim));
  for (const Pointer& pointer : pointers_)
    put(record, pointer.offset, tensors.address[pointer.slot]);
  MOEJIT_TRY(put_maps(place.device, tensors, record));
  LaunchRequest request{.kernel = loaded_.get(),
                        .ctas = cta_count,
                        .threads = kernel_->launch.threads,
                        .shared_bytes = kernel_->launch.shared_bytes,
                        .params = std::span(record).first(record_bytes_),
                        .overlaps = overlaps,
                        .is_recorded = place.is_recorded};
  if (place.device.reads_regions()) return launch_in_regions(place, tensors, request, before);
  return place.device.launch(request, place.stream);
}

}  // namespace moejit::runtime
