// SPDX-License-Identifier: Apache-2.0
#include "runtime/group_layer.h"

namespace moejit::runtime {

Result<std::unique_ptr<GroupLayer>> GroupLayer::prepare(const compiler::GroupPlan& plan,
                                                        Group& group, Engine& engine,
                                                        const PrepareOptions& options) {
  std::unique_ptr<GroupLayer> layer(new GroupLayer);
  layer->plan_ = std::make_shared<const compiler::GroupPlan>(plan);
  MOEJIT_TRY_ASSIGN(layer->prepared_, PreparedPlan::prepare(layer->plan_, engine, group, options));
  return layer;
}

}  // namespace moejit::runtime
