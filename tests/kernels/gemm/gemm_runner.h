// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/candidates.h"
#include "runtime/reference/gemm.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/tested_target.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moejit::testing {

// The bits of a NaN in E4M3.
inline constexpr uint8_t kE4m3Nan = 0x7f;

// Whether kernels run on a GPU: the simulator gets smaller shapes and fewer repetitions.
inline const bool kOnGpu = tested_target() == "cuda";
template <typename Number>
Number by_target(Number on_simulator, Number on_gpu) {
  return kOnGpu ? on_gpu : on_simulator;
}

// Returns the spec as large GPUs without WGMMA get it: warpgroups halve columns, if they may.
template <typename Spec>
Spec without_wgmma(const Spec& spec) {
  return compiler::fitted(spec, compiler::parse_target("cuda:sm_100f").value());
}

// Splits of the rows into groups, as the route kernel makes them.
reference::Route splits(std::vector<int32_t> counts, int32_t alignment);

// Returns the groups of a route, all without rows except one. Rows of the others belong to nobody.
reference::Route only_group(const reference::Route& route, std::size_t group);

// Integers from -2 to 2 and scales from 1/4 to 4 by chance.
reference::QuantizedRows integer_rows(const compiler::GroupedGemmSpec& spec, int64_t rows,
                                      uint64_t seed = 1);
reference::QuantizedWeights integer_weights(const compiler::GroupedGemmSpec& spec,
                                            uint64_t seed = 2);
reference::QuantizedRows random_rows(const compiler::GroupedGemmSpec& spec, int64_t rows,
                                     uint64_t seed = 3);
reference::QuantizedWeights random_weights(const compiler::GroupedGemmSpec& spec,
                                           uint64_t seed = 4);

// Gives pad rows NaN data and scales: nothing of them may reach a result.
void poison_pad_rows(const reference::Route& route, reference::QuantizedRows& a);

// A fixture that multiplies with the kernel that the planner makes of a problem.
class GemmTest : public Chains {
 protected:
  // The problem with the planner's tiles. `sharing` blocks of k share their scales.
  static compiler::GroupedGemmSpec problem(int32_t experts, int32_t sections, int32_t section_n,
                                           int32_t k, int32_t sharing = 1);
  // Returns that problem with swapped tiles, one of which is enough for `largest_group` rows.
  static compiler::GroupedGemmSpec swapped_problem(int32_t experts, int32_t sections,
                                                   int32_t section_n, int32_t k,
                                                   int32_t sharing = 1, int64_t largest_group = 64);

  // The map of a field of the kernel's parameters, empty where the plan has none for it.
  device::TensorMap map_of(const std::vector<compiler::TensorMapPlan>& maps, std::string_view role,
                           const DeviceBuffer& buffer);

  // All of D [rows + 130, N] after the launch, of whole clusters; it is poison before.
  std::vector<uint16_t> multiply_all(const compiler::GroupedGemmSpec& spec,
                                     const reference::Route& route,
                                     const reference::QuantizedRows& rows,
                                     const reference::QuantizedWeights& weights, int64_t ctas = 3);
  // D [offs[E], N]; expects that nothing behind it was written.
  std::vector<uint16_t> multiply(const compiler::GroupedGemmSpec& spec,
                                 const reference::Route& route,
                                 const reference::QuantizedRows& rows,
                                 const reference::QuantizedWeights& weights, int64_t ctas = 3);

  // Expects the reference's bits, on random numbers or those given, whatever pad rows hold.
  void expect_exact(const compiler::GroupedGemmSpec& spec, const reference::Route& route,
                    uint64_t seed = 1);
  void expect_exact(const compiler::GroupedGemmSpec& spec, const reference::Route& route,
                    reference::QuantizedRows rows, const reference::QuantizedWeights& weights);
};

}  // namespace moejit::testing
