// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_layer.h"

#include "compiler/group_plan.h"

namespace moejit::runtime {

Result<std::unique_ptr<PreparedLayer>> PreparedLayer::prepare(const compiler::LayerPlan& plan,
                                                              Engine& engine, Device& device,
                                                              const PrepareOptions& options) {
  MOEJIT_TRY(check_is_of_one_rank(plan.layer));
  std::unique_ptr<PreparedLayer> layer(new PreparedLayer);
  layer->plan_ = std::make_shared<const compiler::LayerPlan>(plan);
  MOEJIT_TRY_ASSIGN(layer->prepared_, PreparedPlan::prepare(layer->plan_, engine, device, options));
  return layer;
}

Result<std::unique_ptr<PreparedLayer>> PreparedLayer::prepare(const compiler::GroupPlan& plan,
                                                              Group& group, Engine& engine,
                                                              const PrepareOptions& options) {
  std::unique_ptr<PreparedLayer> layer(new PreparedLayer);
  const auto shared = std::make_shared<const compiler::GroupPlan>(plan);
  layer->plan_ = shared;
  MOEJIT_TRY_ASSIGN(layer->prepared_, PreparedPlan::prepare(shared, engine, group, options));
  return layer;
}

}  // namespace moejit::runtime
