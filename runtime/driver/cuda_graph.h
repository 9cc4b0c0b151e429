// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/driver/context.h"

#include <functional>
#include <memory>

namespace moejit::runtime {

// Does Device::record() in a context, on a stream of its own.
Result<std::unique_ptr<Recording>> record_cuda_graph(
    std::shared_ptr<const Context> context, const std::function<Result<void>(Stream)>& queue);

}  // namespace moejit::runtime
