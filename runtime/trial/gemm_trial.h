// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/measure/gemm_case.h"
#include "runtime/trial/trial.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace moejit::trial {

// The kernel of a case, loaded, with operands and result on a device. Its tensors are "a", "b", the
// scales "a_scale_inv" and "b_scale_inv", and the result "d". Engine and device must live longer.
class GemmTrial {
 public:
  // Plans, compiles and loads the kernel, and fills the operands. Errors: of the compiler, the
  // cache, the device.
  static Result<std::unique_ptr<GemmTrial>> create(const measure::GemmCase& gemm,
                                                   runtime::Engine& engine, runtime::Device& device,
                                                   uint64_t seed);

  // Returns every kernel that create() compiles.
  static Result<std::vector<compiler::KernelSource>> sources(const measure::GemmCase& gemm,
                                                             const compiler::Target& target);

  const measure::GemmCase& gemm() const { return gemm_; }
  const measure::GemmGroups& groups() const { return groups_; }
  Trial& trial() { return *trial_; }
  const compiler::Target& target() const { return trial_->plan().target; }
  const compiler::KernelPlan& kernel() const { return trial_->plan().kernels.front(); }

  // Returns every element of a new result, if launches add to it. Otherwise a new result holds NaN.
  static constexpr float old_value(compiler::DType dtype) {
    return dtype == compiler::DType::kBF16 ? 0x1.88p+9f : 0x1.888888p+9f;
  }
  // Makes the result new again, on the default stream.
  Result<void> reset_result();

  // Queues one launch on the default stream. All launches give the same result, unless they add to
  // it.
  Result<void> launch() { return trial_->call("run"); }
  // Returns `count` elements of a tensor, from element `first` on; waits for all launches.
  template <typename T>
  Result<std::vector<T>> read(std::string_view tensor, int64_t first, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    const auto* const from = static_cast<const T*>(trial_->tensors().address_of(tensor));
    MOEJIT_TRY(trial_->device().synchronize(nullptr));
    MOEJIT_TRY(trial_->device().copy_to_host(values.data(), from + first,
                                             count * static_cast<int64_t>(sizeof(T))));
    return values;
  }

 private:
  explicit GemmTrial(const measure::GemmCase& gemm) : gemm_(gemm), groups_(make_groups(gemm)) {}

  const measure::GemmCase gemm_;
  const measure::GemmGroups groups_;
  std::unique_ptr<Trial> trial_;
};

}  // namespace moejit::trial
