// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_output.h"

#include "runtime/trial/colwise_slices.h"
#include "runtime/trial/padded_halves.h"
#include "runtime/trial/trial.h"

namespace moejit::cli {

runtime::TensorMap tensors_for_file(const compiler::LayerPlan& plan, runtime::TensorMap results,
                                    bool with_intermediates) {
  if (!with_intermediates) {
    std::erase_if(results, [&](const auto& entry) {
      const compiler::TensorPlan* const tensor = compiler::find_tensor(plan, entry.first);
      return tensor == nullptr || !trial::is_result(*tensor);
    });
    return results;
  }
  trial::slice_colwise(results);
  if (plan.layer.gate_up_layout == compiler::GateUpLayout::kInterleaved &&
      !compiler::has_scales(plan.layer.recipe.weights))
    trial::put_gate_first(results, plan.layer.intermediate);
  trial::drop_padding_of_halves(results, plan.layer.intermediate,
                                compiler::padded_intermediate(plan.layer));
  return results;
}

}  // namespace moejit::cli
