// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/digest.h"
#include "compiler/support/fork.h"
#include "runtime/driver/context.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

namespace moejit::runtime {

// A kernel image in the driver, and its kernel, ready in one context.
struct KernelLibrary {
  Digest image;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  int32_t most_threads = 0;        // per CTA
  int32_t most_dynamic_bytes = 0;  // most dynamic shared memory, per CTA
  std::optional<std::size_t> param_bytes;
  int64_t uses = 0;  // layers that use it; 0: idle
};

// The kernels that are loaded into a context. Equal images are loaded once, however many layers use
// them. A kernel that no layer uses any more is idle. It stays loaded, which costs some ten KiB of
// GPU memory and spares the next layer the loading. Letting go of a kernel calls nothing of the
// driver. So it is safe in captures, while launches are in flight, and when the process ends.
//
// Idle kernels are unloaded, the oldest first, when there are more than kMostIdle, when memory runs
// out, and at the end of this object. Unloading waits for all work of the context first, and leaves
// kernels that a graph refers to. Any thread may call any function.
class KernelLibraries {
 public:
  static constexpr std::size_t kMostIdle = 256;

  // `most_shared_bytes` is the shared memory, dynamic and static, that a CTA may have on this GPU.
  KernelLibraries(std::shared_ptr<const Context> context, int32_t most_shared_bytes)
      : context_(std::move(context)), most_shared_bytes_(most_shared_bytes) {}
  ~KernelLibraries() { unload_idle(0); }
  KernelLibraries(const KernelLibraries&) = delete;
  KernelLibraries& operator=(const KernelLibraries&) = delete;

  // Returns the kernel of an image that a loader has verified; it is in use until let_go(). May be
  // called during captures, which stay valid. Errors: kDriver, kOutOfMemory, kStreamCapture.
  Result<std::shared_ptr<KernelLibrary>> use(const compiler::KernelBinary& binary);
  void let_go(KernelLibrary& kernel);

 private:
  Result<std::shared_ptr<KernelLibrary>> load(const compiler::KernelBinary& binary) const;
  Result<void> make_ready(KernelLibrary& kernel, const compiler::KernelBinary& binary) const;
  // Unloads all idle kernels except the newest `kept` and those that graphs refer to. Unloads none
  // if the GPU cannot be waited for.
  void unload_idle(std::size_t kept);

  std::shared_ptr<const Context> context_;
  int32_t most_shared_bytes_;
  ForkMutex mutex_;  // guards the fields below
  // The records are shared with graphs: the record of a kernel that a graph still launches outlives
  // this object.
  std::unordered_map<Digest, std::shared_ptr<KernelLibrary>, DigestHash> kernels_;
  std::list<KernelLibrary*> idle_;  // the oldest first
};

// Makes the graph that is being recorded, and all graphs made of it, keep the kernel loaded.
// Errors: kDriver, kStreamCapture.
Result<void> keep_for_graph(const DriverApi& api, std::shared_ptr<KernelLibrary> kernel,
                            CUstream stream);

}  // namespace moejit::runtime
