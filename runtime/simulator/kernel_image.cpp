// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/kernel_image.h"

#include "compiler/support/exhausted.h"
#include "compiler/support/file.h"
#include "compiler/support/fork_gate.h"

#include <cerrno>
#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

namespace moejit::runtime {
namespace {

tl::unexpected<Error> load_error(const std::string& entry, const std::string& why,
                                 std::string hint = {}) {
  return fail(Stage::kLoad, hint.empty() ? ErrorCode::kInvalidFile : ErrorCode::kOutOfMemory,
              fmt::format("kernel {} cannot be loaded into the simulator: {}", entry, why),
              std::move(hint));
}

}  // namespace

Result<std::unique_ptr<KernelImage>> KernelImage::load(const compiler::KernelBinary& binary) {
  if (binary.target.kind != compiler::TargetKind::kSim) {
    return load_error(binary.entry, "it was compiled for " + to_string(binary.target));
  }
  std::unique_ptr<KernelImage> image(new KernelImage);
  image->entry_ = binary.entry;
  // The file lives in memory and only as long as its descriptor: nothing is left behind.
  image->file_ = memfd_create("moejit_kernel", MFD_CLOEXEC);
  const int error = image->file_ < 0 ? errno : write_all(image->file_, binary.bytes);
  if (error != 0)
    return load_error(binary.entry,
                      fmt::format("a file in memory for it cannot be made: {}", errno_text(error)),
                      hint_for_errno(error));
  // The dynamic linker takes a library of the same path for the same library. The descriptor stays
  // open as long as this library is loaded, so no other library gets its number.
  const std::string path = fmt::format("/proc/self/fd/{}", image->file_);
  const ForkGate gate;
  image->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (image->library_ == nullptr) return load_error(binary.entry, dlerror());
  const std::string name = binary.entry + "_description";
  image->description_ =
      static_cast<const sim::KernelDescription*>(dlsym(image->library_, name.c_str()));
  if (image->description_ == nullptr) {
    return load_error(binary.entry, "it does not hold an entry of that name");
  }
  if (image->description_->machine_version != sim::kMachineVersion) {
    return load_error(binary.entry,
                      fmt::format("it is for version {} of the simulator, not {}",
                                  image->description_->machine_version, sim::kMachineVersion));
  }
  return image;
}

KernelImage::~KernelImage() {
  if (library_ != nullptr) {
    const ForkGate gate;
    dlclose(library_);
  }
  if (file_ >= 0) close(file_);
}

}  // namespace moejit::runtime
