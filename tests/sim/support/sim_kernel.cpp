// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/sim_kernel.h"

#include "tests/support/test_engine.h"

namespace moejit::runtime {
namespace {

constexpr std::string_view kIncludes =
    "#include \"moejit_device/ptx/async_copy.cuh\"\n"
    "#include \"moejit_device/ptx/barrier.cuh\"\n"
    "#include \"moejit_device/ptx/bulk_copy.cuh\"\n"
    "#include \"moejit_device/ptx/bytes.cuh\"\n"
    "#include \"moejit_device/ptx/convert.cuh\"\n"
    "#include \"moejit_device/ptx/matrix_store.cuh\"\n"
    "#include \"moejit_device/ptx/mbarrier.cuh\"\n"
    "#include \"moejit_device/ptx/memory.cuh\"\n"
    "#include \"moejit_device/ptx/mma.cuh\"\n"
    "#include \"moejit_device/ptx/overlap.cuh\"\n"
    "#include \"moejit_device/ptx/system_memory.cuh\"\n"
    "#include \"moejit_device/ptx/tensor_copy.cuh\"\n"
    "#include \"moejit_device/ptx/warp.cuh\"\n"
    "#include \"moejit_device/ptx/warp_mma.cuh\"\n"
    "#include \"moejit_device/ptx/warpgroup.cuh\"\n"
    "#include \"moejit_device/ptx/wgmma.cuh\"\n"
    "using namespace moejit::device;\n"
    "using namespace moejit::device::ptx;\n"
    "#line 1 \"test_kernel.cu\"\n";

// Device memory of a launch, released at the end.
class DeviceBuffers {
 public:
  explicit DeviceBuffers(Device& device) : device_(device) {}
  ~DeviceBuffers() {
    for (void* address : addresses_) device_.release(address);
  }
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  Result<void> upload(const std::vector<SimBuffer>& buffers) {
    for (const SimBuffer& buffer : buffers) {
      const auto bytes = static_cast<int64_t>(buffer.bytes.size());
      MOEJIT_TRY_ASSIGN(void* address, device_.allocate(bytes));
      addresses_.push_back(address);
      if (buffer.written) {
        MOEJIT_TRY(device_.copy_to_device(address, buffer.bytes.data(),
                                          bytes - static_cast<int64_t>(buffer.unwritten_tail)));
      }
      regions_.push_back({buffer.name, address, bytes, buffer.writable});
      if (buffer.before != SimBuffer::Before::kNothing)
        regions_before_.push_back(
            {buffer.name, address, bytes, buffer.before == SimBuffer::Before::kWrites});
    }
    return {};
  }
  Result<void> download(std::vector<SimBuffer>& buffers) const {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      MOEJIT_TRY(device_.copy_to_host(buffers[i].bytes.data(), addresses_[i],
                                      static_cast<int64_t>(buffers[i].bytes.size())));
    }
    return {};
  }
  // The addresses, then the maps from the next multiple of their alignment on.
  Result<std::vector<std::byte>> params(const std::vector<SimMap>& maps) const {
    std::vector<std::byte> record(addresses_.size() * sizeof(void*));
    std::memcpy(record.data(), addresses_.data(), record.size());
    for (const SimMap& wanted : maps) {
      MOEJIT_TRY_ASSIGN(const device::TensorMap map,
                        device_.encode_tensor_map(wanted.box, addresses_[wanted.buffer]));
      constexpr std::size_t kAlignment = alignof(device::TensorMap);
      const std::size_t place = (record.size() + kAlignment - 1) / kAlignment * kAlignment;
      record.resize(place + sizeof(map));
      std::memcpy(record.data() + place, &map, sizeof(map));
    }
    return record;
  }
  std::span<const MemoryRegion> regions() const { return regions_; }
  std::span<const MemoryRegion> regions_before() const { return regions_before_; }

 private:
  Device& device_;
  std::vector<void*> addresses_;
  std::vector<MemoryRegion> regions_, regions_before_;
};

}  // namespace

compiler::KernelSource test_kernel_source(const std::string& body, const std::string& entry,
                                          const compiler::Target& target) {
  compiler::KernelSource source;
  source.entry = entry;
  source.text = std::string(kIncludes) + body;
  source.target = target;
  return source;
}

Result<std::shared_ptr<const compiler::KernelBinary>> compile_test_kernel(
    const std::string& body, const std::string& entry, const compiler::Target& target) {
  return testing::test_engine().binary(test_kernel_source(body, entry, target));
}

Result<void> run_test_kernel(const std::string& body, const SimLaunch& launch,
                             std::vector<SimBuffer>& buffers) {
  MOEJIT_TRY_ASSIGN(const auto binary, compile_test_kernel(body, "test_kernel", launch.target));
  MOEJIT_TRY_ASSIGN(
      const auto device,
      open_simulator({.seed = launch.seed, .workers = launch.workers, .target = launch.target}));
  MOEJIT_TRY_ASSIGN(const auto kernel, device->load(*binary));
  DeviceBuffers memory(*device);
  MOEJIT_TRY(memory.upload(buffers));
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> params, memory.params(launch.maps));
  MOEJIT_TRY(device->launch({.kernel = kernel.get(),
                             .ctas = launch.ctas,
                             .threads = launch.threads,
                             .shared_bytes = launch.shared_bytes,
                             .params = params,
                             .regions = memory.regions(),
                             .overlaps = launch.overlaps,
                             .regions_before = memory.regions_before()},
                            nullptr));
  return memory.download(buffers);
}

}  // namespace moejit::runtime
