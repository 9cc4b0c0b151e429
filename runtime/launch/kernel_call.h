// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/device.h"
#include "runtime/launch/bound_tensors.h"
#include "runtime/launch/kept_values.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace moejit::runtime {

// Returns how many CTAs a kernel gets for T tokens on a device with `sm_count` SMs. It gets as many
// as have work; a persistent kernel gets no more than the device holds at once.
int64_t cta_count(const compiler::KernelPlan& kernel, int64_t tokens, int32_t sm_count);

inline constexpr std::size_t kMostArguments = 96;  // includes tensor maps
inline constexpr std::size_t kMostParamBytes = 1024;

// Where kernels are launched.
struct LaunchPlace {
  Device& device;
  Stream stream = nullptr;
  std::optional<bool> is_recorded;  // as LaunchRequest has it
};

// The launch before in a call, if it lets the next one begin before it ends.
struct LaunchBefore {
  bool overlaps = false;
  std::vector<MemoryRegion> regions;  // for devices that look at them
};

// A kernel of a plan with everything resolved that does not change from call to call.
class KernelCall {
 public:
  // Resolves plan.kernels[index]. `group` has the memory of each rank, if the plan is of one. Error
  // kInternal: the plan names a role or tensor that does not exist, or the machine code takes a
  // record of another size.
  static Result<KernelCall> resolve(const compiler::Plan& plan, std::size_t index,
                                    std::unique_ptr<LoadedKernel> loaded,
                                    std::span<std::byte* const> group);

  // Fills the parameter record for these tensors and launches. Allocates nothing. Asks the device
  // only for tensor maps that the launch before did not have. Any thread may call it at any time.
  // `before` is of this stream, with nothing behind it there; it becomes this launch.
  Result<void> launch(const LaunchPlace& place, const BoundTensors& tensors,
                      LaunchBefore& before) const;

  // Returns the CTAs for T tokens on a device: as many as have work, and no more than fit at once.
  // 0 if there is nothing to do.
  int64_t ctas(int64_t tokens, int32_t sm_count) const;

 private:
  KernelCall() = default;

  // A tensor that the kernel is given.
  struct Argument {
    std::string_view name;  // of the tensor, in the plan
    std::size_t slot = 0;   // in Plan::tensors
    bool is_written = false;
    BoundMemory in_group;  // where the tensor is in all calls, if it is there
  };
  // A place of the record that gets the address of a tensor, one that changes from call to call.
  struct Pointer {
    std::size_t offset = 0;
    std::size_t slot = 0;
  };
  // A place of the record that gets a tensor map.
  struct Map {
    std::size_t offset = 0;
    std::size_t argument = 0;                  // in arguments_
    const compiler::TensorBox* box = nullptr;  // in the plan
    std::optional<compiler::CallDim> dim;      // that the box follows
  };
  // A place of the record that gets a number of the call.
  struct Number {
    std::size_t offset = 0;
    compiler::CallDim dim = compiler::CallDim::kTokens;
  };
  using Record = std::array<std::byte, kMostParamBytes>;

  Result<void> put_maps(const Device& device, const BoundTensors& tensors,
                        std::span<std::byte> record) const;
  // Makes `map` the map of the tensor in this call, unless it is that already.
  Result<void> renew(KeptMap& map, const Map& place, const Device& device,
                     const BoundTensors& tensors) const;
  // Launches with the regions of the arguments, for devices that look at them.
  Result<void> launch_in_regions(const LaunchPlace& place, const BoundTensors& tensors,
                                 LaunchRequest& request, LaunchBefore& before) const;
  // Returns where an argument's tensor is in a call.
  static BoundMemory memory_of(const Argument& argument, const BoundTensors& tensors) {
    if (argument.in_group.address != nullptr) return argument.in_group;
    return {tensors.address[argument.slot], tensors.bytes[argument.slot]};
  }
  // Returns an address for the tensor map of a tensor without elements: the tensor's may be null,
  // but the map's may not. It is any other tensor's, since nothing is read or written through the
  // map.
  const void* any_address(const BoundTensors& tensors) const;

  const compiler::KernelPlan* kernel_ = nullptr;
  std::unique_ptr<LoadedKernel> loaded_;
  std::vector<Argument> arguments_;  // those with tensor maps behind the others
  std::vector<Pointer> pointers_;
  std::vector<Map> maps_;
  std::unique_ptr<KeptMaps> kept_;  // of maps_
  Record record_{};                 // holds the numbers and addresses that do not change
  std::size_t record_bytes_ = 0;
  bool reads_list_ = false;  // whether its first argument has addresses of tensors
  std::vector<Number> numbers_;
};

}  // namespace moejit::runtime
