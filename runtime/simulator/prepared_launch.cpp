// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/prepared_launch.h"

#include "compiler/support/exhausted.h"
#include "compiler/support/file.h"
#include "compiler/support/fork.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
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

namespace {

// Warps and warpgroups of both CTAs of a cluster are counted together, and are fibers of one slab.
Result<void> check_cluster(const LaunchRequest& request, const KernelImage& kernel) {
  const int32_t cluster = kernel.description().cluster_ctas;
  if (cluster == 1) return {};
  const bool is_simulated = cluster == 2 && request.threads % sim::kWarpgroupThreads == 0 &&
                            cluster * request.threads <= StackSlab::kMaxThreads;
  if (is_simulated && request.ctas % cluster == 0) return {};
  return fail(
      Stage::kLaunch, ErrorCode::kInvalidValue,
      fmt::format("kernel {} with clusters of {}: got {} CTAs of {} threads, wanted whole "
                  "clusters of 2, of warpgroups, of at most {} threads",
                  kernel.entry(), cluster, request.ctas, request.threads, StackSlab::kMaxThreads));
}

Result<void> check_launch(const LaunchRequest& request, const KernelImage& kernel,
                          const compiler::Target& target) {
  const auto refuse = [&](std::string_view what, int64_t got, std::string_view wanted,
                          int64_t limit) {
    return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                fmt::format("{} of kernel {}: got {}, wanted {} {}", what, kernel.entry(), got,
                            wanted, limit));
  };
  const sim::KernelDescription& description = kernel.description();
  const int32_t most_threads = std::min(description.max_threads, target.max_threads_per_cta);
  if (request.ctas < 0 || request.ctas > INT32_MAX) {
    return refuse("number of CTAs", request.ctas, "0 to", INT32_MAX);
  }
  MOEJIT_TRY(check_cluster(request, kernel));
  if (request.threads < 1 || request.threads > most_threads) {
    return refuse("threads per CTA", request.threads, "1 to", most_threads);
  }
  if (request.shared_bytes < 0 || request.shared_bytes > target.shared_memory_bytes) {
    return refuse("bytes of dynamic shared memory", request.shared_bytes, "0 to",
                  target.shared_memory_bytes);
  }
  if (request.params.size() != description.params_bytes) {
    return refuse("bytes of parameters", static_cast<int64_t>(request.params.size()), "exactly",
                  description.params_bytes);
  }
  return {};
}

}  // namespace

PreparedLaunch::PreparedLaunch(const LaunchRequest& request, const KernelImage& image,
                               Allocations& allocations, uint64_t seed)
    : params(request.params.size() / sizeof(device::TensorMap) + 1),
      memory(request.regions, allocations),
      before(request.regions_before) {
  const std::span<std::byte> record =
      std::as_writable_bytes(std::span(params)).first(request.params.size());
  std::memcpy(record.data(), request.params.data(), record.size());
  launch = {.kernel = image.entry(),
            .entry = image.description().entry,
            .params = record,
            .ctas = static_cast<int32_t>(request.ctas),
            .threads = request.threads,
            .ctas_per_sm = image.description().ctas_per_sm,
            .cluster_ctas = image.description().cluster_ctas,
            .shared_bytes = static_cast<uint32_t>(request.shared_bytes),
            .seed = seed,
            .memory = &memory,
            .before = request.overlaps ? &before : nullptr};
}

Result<std::unique_ptr<PreparedLaunch>> PreparedLaunch::make(const LaunchRequest& request,
                                                             const KernelImage* image,
                                                             const compiler::Target& target,
                                                             Allocations& allocations,
                                                             uint64_t seed) {
  if (image == nullptr) {
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                "the kernel to launch was not loaded by the simulator");
  }
  MOEJIT_TRY(check_launch(request, *image, target));
  std::unique_ptr<PreparedLaunch> prepared(new PreparedLaunch(request, *image, allocations, seed));
  prepared->launch.mma = {.products = target.mma.products, .fraction = target.mma.fraction};
  return prepared;
}

}  // namespace moejit::runtime
