// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/phase.h"

namespace moejit::compiler {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kWeights: return "weights";
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kForwardScales: return "forward_scales";
    case Phase::kBackwardScales: return "backward_scales";
  }
  return "unknown";
}

std::string_view to_string(BackwardHalf half) {
  switch (half) {
    case BackwardHalf::kData: return "data";
    case BackwardHalf::kWeights: return "weights";
    case BackwardHalf::kFc2: return "fc2";
    case BackwardHalf::kFc1: return "fc1";
  }
  return "unknown";
}

std::string_view to_string(DispatchCall call) {
  switch (call) {
    case DispatchCall::kQuantize: return "quantize";
    case DispatchCall::kExperts: return "experts";
  }
  return "unknown";
}

std::string_view to_string(GradientMode mode) {
  switch (mode) {
    case GradientMode::kOverwrite: return "overwrite";
    case GradientMode::kAdd: return "add";
  }
  return "unknown";
}

}  // namespace moejit::compiler
