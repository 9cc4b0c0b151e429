// SPDX-License-Identifier: Apache-2.0
// Calls of layers that do nothing, for LD_PRELOAD: what is left of a call from PyTorch is what it
// costs the host outside of libmoejit.so. With it a machine without a GPU shows host times, since
// CPU tensors then cost no simulation, and no kernel is compiled.
#include "runtime/bindings/c/moejit_group.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED moejit_error_code moejit_plan_prepare(moejit_plan* /*layer*/, moejit_engine* /*engine*/,
                                               moejit_device* /*device*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_layer_update_weights(moejit_plan* /*layer*/,
                                                       const moejit_call* /*call*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_layer_forward(moejit_plan* /*layer*/,
                                                const moejit_call* /*call*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_layer_backward(moejit_plan* /*layer*/,
                                                 moejit_gradient_mode /*mode*/,
                                                 const moejit_call* /*call*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_plan_prepare_in_group(moejit_plan* /*layer*/,
                                                        moejit_engine* /*engine*/,
                                                        moejit_group* /*group*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_layer_update_weights(moejit_plan* /*layer*/,
                                                       const moejit_call* /*call*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_layer_forward(moejit_plan* /*layer*/,
                                                const moejit_call* /*call*/) {
  return MOEJIT_OK;
}

EXPORTED moejit_error_code moejit_layer_backward(moejit_plan* /*layer*/,
                                                 moejit_gradient_mode /*mode*/,
                                                 const moejit_call* /*call*/) {
  return MOEJIT_OK;
}
