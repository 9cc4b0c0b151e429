// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "runtime/engine.h"

#include <memory>

namespace moejit::cli {

// An engine with the cache that the command line asks for; its warnings go to the terminal, which
// must live longer. $MOEJIT_FROZEN counts like --frozen.
Result<std::unique_ptr<runtime::Engine>> open_engine(const CacheOptions& options,
                                                     const Terminal& terminal);

}  // namespace moejit::cli
