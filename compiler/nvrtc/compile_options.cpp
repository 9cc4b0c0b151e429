// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/compile_options.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::vector<std::string> compile_options(const Target& target, int nvrtc_major, int nvrtc_minor) {
  std::vector<std::string> options = {
      fmt::format("--gpu-architecture={}", nvrtc_arch(target)),
      "--std=c++20",
      "--fmad=false",
      "--ftz=false",
      "--prec-div=true",
      "--prec-sqrt=true",
      "--ptxas-options=-v",  // spills, into the log; the machine code is the same without it
  };
  // Disables the driver's own cache below the home folder, which would keep results that our cache
  // keeps already, and whose hits have no log. Older versions know neither the cache nor the
  // option.
  const bool knows_no_cache = nvrtc_major > 12 || (nvrtc_major == 12 && nvrtc_minor >= 9);
  if (knows_no_cache) options.emplace_back("--no-cache");
  // Leaves out declarations that our kernels do not use and that take time to read.
  if (nvrtc_major >= 13) options.emplace_back("--minimal");
  return options;
}

}  // namespace moejit::compiler
