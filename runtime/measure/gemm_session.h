// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/measure/gemm_operands.h"
#include "runtime/measure/operation_run.h"
#include "runtime/measure/timed_launches.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::measure {

// The kernel of a case, loaded, with operands and result on a device. Engine and device must live
// longer.
class GemmSession {
 public:
  // Plans, compiles and loads the kernel, and fills the operands. Errors: of the compiler, the
  // cache, the device.
  static Result<std::unique_ptr<GemmSession>> create(const GemmCase& gemm, runtime::Engine& engine,
                                                     runtime::Device& device, uint64_t seed);

  // Returns every kernel that create() compiles.
  static Result<std::vector<compiler::KernelSource>> sources(const GemmCase& gemm,
                                                             const compiler::Target& target);

  const GemmCase& gemm() const { return gemm_; }
  const GemmGroups& groups() const { return groups_; }
  const compiler::KernelPlan& kernel() const { return run_.kernel(); }
  const GemmOperands& operands() const { return operands_; }
  // Returns the result: BF16 [P, n], or for a contraction-grouped GEMM BF16 or F32 [E, rows, n].
  const runtime::NamedMemory& result() const { return d_; }

  // Every element of a new result, if launches add to it. Otherwise a new result holds NaN.
  static constexpr float kOldValue = 0x1.888888p+9f;
  // Makes the result new again, on the default stream.
  Result<void> reset_result();

  // Plans, compiles and loads the kernel with other options, for the operands and the result of
  // this session, which must live longer.
  Result<OperationRun> version(const compiler::PlanOptions& options, runtime::Engine& engine);
  // Returns whether launches add to the result.
  bool is_added_to() const;

  // Queues one launch on the default stream. All launches give the same result, unless they add to
  // it.
  Result<void> launch() { return run_.launch(); }
  // Returns what the last launch counted; waits for it.
  Result<ClockSample> elapsed();
  // Returns `count` elements of one of the memories above, from element `first` on; waits for all
  // launches.
  template <typename T>
  Result<std::vector<T>> read(const runtime::NamedMemory& from, int64_t first, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    MOEJIT_TRY(device_.synchronize(nullptr));
    MOEJIT_TRY(device_.copy_to_host(values.data(), from.as<const T>() + first,
                                    count * static_cast<int64_t>(sizeof(T))));
    return values;
  }

 private:
  explicit GemmSession(runtime::Device& device) : device_(device) {}

  runtime::Device& device_;
  GemmCase gemm_;
  GemmGroups groups_;
  GemmOperands operands_;
  runtime::NamedMemory d_, elapsed_;
  OperationRun run_;
};

// Measure the session's kernel as the kernels of a layer are measured (measure_layer.h). The clock
// of the hot run is the clock of its last launch.
Result<CoolRun> measure_cool(GemmSession& session, CacheSweep& sweep, runtime::Device& device,
                             int32_t repeat);
Result<HotRun> measure_hot(GemmSession& session, runtime::Device& device, double seconds,
                           GpuMonitor* monitor = nullptr);

}  // namespace moejit::measure
