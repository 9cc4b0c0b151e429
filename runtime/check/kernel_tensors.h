// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/check/tensor_check.h"
#include "runtime/host_tensor.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::check {

// The tensors of one kernel by their roles in its parameter record, as operands of the CPU
// reference. A tensor map's role is its name without "_map". Plan and maps must outlive this.
class KernelTensors {
 public:
  KernelTensors(const compiler::Plan& plan, const compiler::KernelPlan& kernel,
                const runtime::TensorMap& inputs, const runtime::TensorMap& results)
      : plan_(plan), kernel_(kernel), inputs_(inputs), results_(results) {}

  const compiler::Plan& plan() const { return plan_; }
  const compiler::CallBounds& bounds() const { return kernel_.bounds; }

  // Returns the name of the role's tensor; empty if the kernel does not have the role.
  std::string_view name(std::string_view role) const;
  // Returns whether the kernel has the role and its tensor's contents are known.
  bool has(std::string_view role) const { return find(role) != nullptr; }
  const runtime::HostTensor& at(std::string_view role) const { return *find(role); }

  // Returns what the role's tensor held before the kernel added to it; null if that is not known.
  const runtime::HostTensor* before(std::string_view role) const;

  // Returns the tensor of this name; null if its contents are not known.
  const runtime::HostTensor* find_named(std::string_view name) const;

  template <typename T>
  std::span<const T> view(std::string_view role) const {
    return runtime::elements<T>(at(role));
  }
  // Returns the tensor of the role with the scales of the role "<role>_scale_inv".
  reference::QuantizedRows rows(std::string_view role) const;
  reference::QuantizedWeights weights(std::string_view role, int64_t sections) const;
  // Returns the probabilities as floats; empty if the kernel takes none.
  std::vector<float> probs() const;
  // Returns the groups, and the row map if the kernel has one.
  reference::Route route() const;

 private:
  const runtime::HostTensor* find(std::string_view role) const { return find_named(name(role)); }

  const compiler::Plan& plan_;
  const compiler::KernelPlan& kernel_;
  const runtime::TensorMap& inputs_;
  const runtime::TensorMap& results_;
};

// The checks of a plan's tensors, each at most once.
class CheckList {
 public:
  void add(TensorCheck check);
  void add(std::vector<TensorCheck> checks);
  // Adds a check of some elements of a tensor. It is joined with checks of the tensor's other
  // elements.
  void add_part(TensorCheck check);
  // The next functions compare the tensor of a role with what is wanted, bit for bit.
  void codes(const KernelTensors& tensors, std::string_view role,
             const std::vector<uint8_t>& wanted);
  void bytes(const KernelTensors& tensors, std::string_view role,
             const std::vector<uint8_t>& wanted);
  // Compares floats. If the tensor has words of four E8M0 scales, the floats hold these as their
  // bits, and bytes are compared.
  void floats(const KernelTensors& tensors, std::string_view role,
              const std::vector<float>& wanted);
  void integers(const KernelTensors& tensors, std::string_view role,
                const std::vector<int32_t>& wanted);
  void bf16(const KernelTensors& tensors, std::string_view role,
            const std::vector<uint16_t>& wanted);
  // Compares `bits` of the status word with what this kernel and the ones checked before have set.
  void status(const KernelTensors& tensors, uint32_t bits, uint32_t wanted);
  // Compares the codes of a role and their scales.
  void rows(const KernelTensors& tensors, std::string_view role,
            const reference::QuantizedRows& wanted);

  bool all_passed() const;
  std::vector<TensorCheck> take() { return std::move(checks_); }

 private:
  std::vector<TensorCheck> checks_;
  std::set<std::string, std::less<>> names_;
  uint32_t status_ = 0;
};

}  // namespace moejit::check
