// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/open_layer.h"

#include "cli/inputs/random_layer_inputs.h"
#include "compiler/compiler.h"

namespace moejit::cli {

Result<std::shared_ptr<LayerSession>> open_layer(const TunedLayer& tuned, OpenedLayer& opened,
                                                 runtime::Engine& engine, runtime::Device& device) {
  if (opened.session != nullptr && opened.tuned == tuned) return opened.session;
  opened = {};
  MOEJIT_TRY_ASSIGN(const compiler::LayerPlan plan, plan_layer(tuned.layer, device.target()));
  MOEJIT_TRY_ASSIGN(std::shared_ptr<LayerSession> session,
                    LayerSession::create(plan, engine, device,
                                         measuring_inputs(tuned.layer, tuned.tokens, tuned.seed)));
  MOEJIT_TRY(session->update_weights());
  MOEJIT_TRY(session->forward());
  if (has_backward(tuned.layer)) MOEJIT_TRY(session->backward(compiler::GradientMode::kOverwrite));
  opened = {tuned, session};
  return session;
}

}  // namespace moejit::cli
