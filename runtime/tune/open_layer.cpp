// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/open_layer.h"

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/trial/random_layer_inputs.h"

namespace moejit::tune {
namespace {

using runtime::TensorMap;

TensorMap inputs_of(const TunedLayer& tuned) {
  if (tuned.layer.expert_parallel.ranks > 1)
    return trial::slot_inputs(tuned.measured_layer(), tuned.measured_tokens(), tuned.seed);
  return trial::measuring_inputs(tuned.measured_layer(), tuned.tokens, tuned.seed);
}

}  // namespace

compiler::Layer TunedLayer::measured_layer() const {
  return is_of_group(layer) ? layer_of_experts(layer) : layer;
}

int64_t TunedLayer::measured_tokens() const {
  return is_of_group(layer) ? layer.expert_parallel.ranks * tokens : tokens;
}

Result<std::shared_ptr<trial::Trial>> open_layer(const TunedLayer& tuned, OpenedLayer& opened,
                                                 runtime::Engine& engine, runtime::Device& device) {
  if (opened.session != nullptr && opened.tuned == tuned) return opened.session;
  opened = {};
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, plan_layer(tuned.measured_layer(), device.target()));
  MOEJIT_TRY_ASSIGN(std::shared_ptr<trial::Trial> session,
                    trial::Trial::create(plan, engine, device, inputs_of(tuned)));
  MOEJIT_TRY(session->call("update_weights"));
  MOEJIT_TRY(session->call("forward"));
  if (has_backward(tuned.layer)) MOEJIT_TRY(session->call("backward"));
  opened = {tuned, session};
  return session;
}

}  // namespace moejit::tune
