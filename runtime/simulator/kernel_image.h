// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "templates/moejit_sim/machine.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace moejit::runtime {

// A simulated kernel, loaded into this process from bytes in memory.
class KernelImage : public LoadedKernel {
 public:
  // Loads a kernel. Errors (stage load): the bytes are no shared object of this machine, or come
  // from another moejit.
  static Result<std::unique_ptr<KernelImage>> load(const compiler::KernelBinary& binary);
  ~KernelImage() override;
  KernelImage(const KernelImage&) = delete;
  KernelImage& operator=(const KernelImage&) = delete;

  std::optional<std::size_t> param_bytes() const override { return description_->params_bytes; }
  const std::string& entry() const { return entry_; }
  const sim::KernelDescription& description() const { return *description_; }

 private:
  KernelImage() = default;

  std::string entry_;
  int file_ = -1;
  void* library_ = nullptr;
  const sim::KernelDescription* description_ = nullptr;
};

}  // namespace moejit::runtime
