// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/device.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moejit::testing {

// The byte that outputs start with, so that what a kernel leaves out is seen.
inline constexpr uint8_t kUntouched = 0xcd;
// Bytes on either side of an output that a test looks at too.
inline constexpr int64_t kGuardBytes = 256;

// Memory of a device for the length of a test. Outputs start as bytes kUntouched.
class DeviceBuffer {
 public:
  DeviceBuffer(runtime::Device& device, std::string name, int64_t bytes, const void* contents);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  template <typename T>
  T* as() const {
    return static_cast<T*>(address_);
  }
  template <typename T>
  std::vector<T> download() const {
    return download<T>(0, bytes_ / static_cast<int64_t>(sizeof(T)));
  }
  // `count` elements from `first` on.
  template <typename T>
  std::vector<T> download(int64_t first, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    read(values.data(), first * static_cast<int64_t>(sizeof(T)), values.size() * sizeof(T));
    return values;
  }
  // Overwrites the elements from `first` on.
  template <typename T>
  void upload(int64_t first, const std::vector<T>& values) const {
    write(values.data(), first * static_cast<int64_t>(sizeof(T)), values.size() * sizeof(T));
  }
  runtime::MemoryRegion region() const { return {name_, address_, bytes_, is_output_}; }

 private:
  void read(void* destination, int64_t offset, size_t bytes) const;
  void write(const void* source, int64_t offset, size_t bytes) const;

  runtime::Device* device_;
  std::string name_;
  void* address_ = nullptr;
  int64_t bytes_;
  bool is_output_;
};

// The first `count` elements.
template <typename T>
std::vector<T> head(std::vector<T> values, int64_t count) {
  values.resize(static_cast<size_t>(count));
  return values;
}

// Expects that every byte is still kUntouched; says which element of these is the first that was
// written.
::testing::AssertionResult untouched(std::span<const std::byte> bytes, size_t element_bytes);

// Every byte of the elements from `first` on is still kUntouched.
template <typename T>
::testing::AssertionResult untouched_from(const std::vector<T>& values, int64_t first) {
  const auto start = std::min(static_cast<size_t>(first), values.size());
  return untouched(std::as_bytes(std::span(values).subspan(start)), sizeof(T))
         << ", counted from element " << first;
}

// The stage that quantizes `sharing` scale blocks of a row together.
inline compiler::QuantizeStage quantize_stage(int64_t sharing) {
  return sharing == 2 ? compiler::QuantizeStage::k1x128Pairs : compiler::QuantizeStage::k1x128;
}

// A fixture: the device that this executable is for, and kernels made from specs.
class Chains : public ::testing::Test {
 protected:
  void SetUp() override { open(0); }

  // The order of the simulator's threads; a GPU has its own.
  void open(uint64_t seed);

  template <typename T>
  DeviceBuffer input(std::string name, const std::vector<T>& values) {
    return {*device_, std::move(name), static_cast<int64_t>(values.size() * sizeof(T)),
            values.data()};
  }
  template <typename T>
  DeviceBuffer output(std::string name, int64_t count) {
    return {*device_, std::move(name), count * static_cast<int64_t>(sizeof(T)), nullptr};
  }

  // The buffer as tensor copies see it.
  device::TensorMap tensor_map(const compiler::TensorBox& box, const DeviceBuffer& buffer) {
    const auto map = device_->encode_tensor_map(box, buffer.as<void>());
    EXPECT_TRUE(succeeded(map));
    return map.value_or(device::TensorMap{});
  }

  // Sets every byte of a buffer.
  void fill(const DeviceBuffer& buffer, uint8_t value) {
    const runtime::MemoryRegion region = buffer.region();
    EXPECT_TRUE(
        succeeded(device_->fill(buffer.as<void>(), std::byte{value}, region.bytes, nullptr)));
  }

  // Compiles the kernel of `spec`, if that has not been done, and runs it to its end.
  template <typename Params>
  void run(const compiler::KernelSpec& spec, int64_t ctas, const Params& params,
           const std::vector<const DeviceBuffer*>& buffers) {
    run_bytes(spec, std::min(ctas, most_ctas_), std::as_bytes(std::span(&params, 1)), buffers);
  }

  // CTAs that a launch has at most. Kernels whose CTAs walk do all of their work with any number.
  int64_t most_ctas_ = INT64_MAX;

 private:
  void run_bytes(const compiler::KernelSpec& spec, int64_t ctas, std::span<const std::byte> params,
                 const std::vector<const DeviceBuffer*>& buffers);

  std::unique_ptr<runtime::Device> device_;
};

}  // namespace moejit::testing
