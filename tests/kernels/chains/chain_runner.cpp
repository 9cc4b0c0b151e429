// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/chains/chain_runner.h"

#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "tests/support/kernels_ahead.h"
#include "tests/tested_target.h"

namespace moejit::testing {
namespace {

const std::string_view kTarget = tested_target();

Result<std::shared_ptr<const compiler::KernelBinary>> compile(const compiler::KernelSpec& spec,
                                                              const compiler::Target& target) {
  const compiler::KernelPlan plan{.operation = "chain", .spec = spec};
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source, emit_kernel(plan, target));
  return obtain_test_kernel(source);
}

}  // namespace

::testing::AssertionResult untouched(std::span<const std::byte> bytes, size_t element_bytes) {
  const auto written =
      std::ranges::find_if(bytes, [](std::byte byte) { return byte != std::byte{kUntouched}; });
  if (written == bytes.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "element " << static_cast<size_t>(written - bytes.begin()) / element_bytes
         << " was written";
}

DeviceBuffer::DeviceBuffer(runtime::Device& device, std::string name, int64_t bytes,
                           const void* contents)
    : device_(&device), name_(std::move(name)), bytes_(bytes), is_output_(contents == nullptr) {
  const Result<void*> memory = device.allocate(bytes);
  EXPECT_TRUE(succeeded(memory));
  address_ = memory.value_or(nullptr);
  if (address_ == nullptr) return;
  const Result<void> set = is_output_ ? device.fill(address_, std::byte{kUntouched}, bytes, nullptr)
                                      : device.copy_to_device(address_, contents, bytes);
  EXPECT_TRUE(succeeded(set));
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      address_(std::exchange(other.address_, nullptr)),
      bytes_(other.bytes_),
      is_output_(other.is_output_) {}

DeviceBuffer::~DeviceBuffer() {
  if (address_ != nullptr) device_->release(address_);
}

void DeviceBuffer::read(void* destination, int64_t offset, size_t bytes) const {
  if (address_ == nullptr) return;
  EXPECT_TRUE(succeeded(device_->copy_to_host(destination, as<const std::byte>() + offset,
                                              static_cast<int64_t>(bytes))));
}

void DeviceBuffer::write(const void* source, int64_t offset, size_t bytes) const {
  if (address_ == nullptr) return;
  EXPECT_TRUE(succeeded(
      device_->copy_to_device(as<std::byte>() + offset, source, static_cast<int64_t>(bytes))));
}

void Chains::open(uint64_t seed) {
  Result<std::unique_ptr<runtime::Device>> device =
      kTarget == "sim" ? runtime::open_simulator({.seed = seed}) : runtime::open_cuda_device();
  if (!device && kTarget == "cuda") GTEST_SKIP() << to_string(device.error());
  ASSERT_TRUE(succeeded(device));
  device_ = std::move(*device);
}

void Chains::run_bytes(const compiler::KernelSpec& spec, int64_t ctas,
                       std::span<const std::byte> params,
                       const std::vector<const DeviceBuffer*>& buffers) {
  const auto binary = compile(spec, device_->target());
  ASSERT_TRUE(succeeded(binary));
  const auto kernel = device_->load(**binary);
  ASSERT_TRUE(succeeded(kernel));
  std::vector<runtime::MemoryRegion> regions;
  for (const DeviceBuffer* buffer : buffers) regions.push_back(buffer->region());
  const compiler::LaunchShape shape = compiler::launch_shape(spec);
  const runtime::LaunchRequest request{.kernel = kernel->get(),
                                       .ctas = ctas,
                                       .threads = shape.threads,
                                       .shared_bytes = shape.shared_bytes,
                                       .params = params,
                                       .regions = regions};
  ASSERT_TRUE(succeeded(device_->launch(request, nullptr)));
  ASSERT_TRUE(succeeded(device_->synchronize(nullptr)));
}

}  // namespace moejit::testing
