// SPDX-License-Identifier: Apache-2.0
// Which records kernels are launched with: those of the call at hand, whatever the calls before had
// and however many threads there are.
#include "runtime/launch/kernel_call.h"

#include "compiler/launch.h"
#include "tests/support/matchers.h"
#include "tests/unit/runtime/small_layer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

namespace moejit::runtime {
namespace {

using compiler::TensorMapPlan;
using testing::succeeded;

class NoKernel final : public LoadedKernel {
 public:
  std::optional<std::size_t> param_bytes() const override { return {}; }
};

// Notes the record of each thread's last launch. Its tensor maps hold an address and the sizes of
// its dimensions. It does nothing else.
class NotingDevice final : public Device {
 public:
  compiler::Target target() const override { return {}; }
  std::string name() const override { return "noting device"; }
  int32_t sm_count() const override { return 132; }
  Result<std::unique_ptr<LoadedKernel>> load(const compiler::KernelBinary&) override {
    return std::make_unique<NoKernel>();
  }
  bool reads_regions() const override { return false; }
  Result<void> launch(const LaunchRequest& request, Stream) override {
    std::ranges::copy(request.params, last_record.begin());
    return {};
  }
  Result<device::TensorMap> encode_tensor_map(const compiler::TensorBox& box,
                                              const void* address) const override {
    ++encoded;
    return map_of(box, address);
  }
  static device::TensorMap map_of(const compiler::TensorBox& box, const void* address) {
    device::TensorMap map{.opaque = {reinterpret_cast<uint64_t>(address)}};
    for (std::size_t i = 0; i < box.dims.size(); ++i)
      map.opaque[i + 1] = static_cast<uint64_t>(box.dims[i]);
    return map;
  }
  Result<void*> allocate(int64_t) override { return nullptr; }
  Result<void> release(void*) override { return {}; }
  Result<void> copy_to_device(void*, const void*, int64_t) override { return {}; }
  Result<void> copy_to_host(void*, const void*, int64_t) override { return {}; }
  Result<void> copy_on_device(void*, const void*, int64_t, Stream) override { return {}; }
  Result<void> fill(void*, std::byte, int64_t, Stream) override { return {}; }
  Result<void> synchronize(Stream) override { return {}; }
  Result<void*> record_mark(Stream) override { return nullptr; }
  Result<double> microseconds_between(void*, void*) override { return 0.0; }
  void release_mark(void*) override {}

  static inline thread_local std::array<std::byte, kMostParamBytes> last_record{};
  mutable std::atomic<int64_t> encoded = 0;
};

// A GEMM of a layer, one of whose tensor maps has a dimension that changes from call to call.
class KernelCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    plan_ = plan_layer(small_layer(), {}).value();
    const auto found = std::ranges::find_if(plan_.kernels, [](const compiler::KernelPlan& kernel) {
      return std::ranges::any_of(kernel.tensor_maps,
                                 [](const TensorMapPlan& map) { return map.box.call_dim >= 0; });
    });
    ASSERT_NE(found, plan_.kernels.end());
    kernel_ = &*found;
    auto call = KernelCall::resolve(plan_, static_cast<std::size_t>(found - plan_.kernels.begin()),
                                    std::make_unique<NoKernel>(), {});
    ASSERT_TRUE(succeeded(call));
    call_ = std::make_unique<KernelCall>(std::move(*call));
  }
  // Returns tensors from `base` on, a mebibyte each, of a call with so many rows.
  BoundTensors tensors(uint64_t base, int64_t rows) const {
    BoundTensors bound;
    for (std::size_t slot = 0; slot < plan_.tensors.size(); ++slot) {
      bound.address[slot] = reinterpret_cast<void*>(base + (slot << 20U));
      bound.bytes[slot] = plan_.tensors[slot].bytes;
      bound.is_bound[slot] = true;
    }
    bound.dims = {.tokens = rows / 2, .rows = rows, .columns = rows};
    return bound;
  }
  void launch(const BoundTensors& bound) {
    LaunchBefore nothing;
    const auto launched = call_->launch({.device = device_}, bound, nothing);
    ASSERT_TRUE(succeeded(launched));
  }
  // Returns whether the last launch of this thread had the tensor maps of these tensors.
  bool has_maps_of(const BoundTensors& bound) const {
    const compiler::ParamRecord& record = compiler::param_record(kernel_->spec);
    return std::ranges::all_of(kernel_->tensor_maps, [&](const TensorMapPlan& map) {
      const auto tensor = std::ranges::find(plan_.tensors, map.tensor, &compiler::TensorPlan::name);
      const auto slot = static_cast<std::size_t>(tensor - plan_.tensors.begin());
      compiler::TensorBox box = map.box;
      if (box.call_dim >= 0)
        box.dims[static_cast<std::size_t>(box.call_dim)] = bound.dims.size(*call_dim(*tensor));
      const device::TensorMap wanted = NotingDevice::map_of(box, bound.address[slot]);
      const auto place =
          std::ranges::find(record.maps, map.role, &compiler::RecordTensor::role)->offset;
      return std::memcmp(NotingDevice::last_record.data() + place, &wanted, sizeof(wanted)) == 0;
    });
  }

  compiler::Plan plan_;
  const compiler::KernelPlan* kernel_ = nullptr;
  std::unique_ptr<KernelCall> call_;
  NotingDevice device_;
};

TEST_F(KernelCallTest, EncodesTheMapsOfEqualCallsOnce) {
  const BoundTensors bound = tensors(1U << 30U, 128);
  launch(bound);
  EXPECT_EQ(device_.encoded, std::ssize(kernel_->tensor_maps));
  for (int i = 0; i < 3; ++i) launch(bound);
  EXPECT_EQ(device_.encoded, std::ssize(kernel_->tensor_maps));
  EXPECT_TRUE(has_maps_of(bound));
}

TEST_F(KernelCallTest, HasTheMapsOfItsOwnTensors) {
  for (const auto& [base, rows] : {std::pair{1U << 30U, 128},
                                   {1U << 31U, 128},
                                   {1U << 31U, 256},
                                   {1U << 30U, 256},
                                   {1U << 30U, 128}}) {
    SCOPED_TRACE(base + rows);
    launch(tensors(base, rows));
    EXPECT_TRUE(has_maps_of(tensors(base, rows)));
  }
}

// A tensor that moved leaves the maps of the others as they are.
TEST_F(KernelCallTest, EncodesOnlyTheMapsOfTensorsThatMoved) {
  BoundTensors bound = tensors(1U << 30U, 128);
  launch(bound);
  const int64_t before = device_.encoded;
  const std::string& moved = kernel_->tensor_maps.front().tensor;
  const auto tensor = std::ranges::find(plan_.tensors, moved, &compiler::TensorPlan::name);
  bound.address[static_cast<std::size_t>(tensor - plan_.tensors.begin())] =
      reinterpret_cast<void*>(uint64_t{1} << 40U);
  launch(bound);
  EXPECT_TRUE(has_maps_of(bound));
  EXPECT_EQ(device_.encoded - before,
            std::ranges::count(kernel_->tensor_maps, moved, &TensorMapPlan::tensor));
}

TEST_F(KernelCallTest, HasTheMapsOfItsOwnThread) {
  constexpr int kThreads = 4, kLaunches = 20000;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        const BoundTensors bound =
            tensors(static_cast<uint64_t>(thread + 1) << 30U, 128 * (thread % 2 + 1));
        for (int i = 0; i < kLaunches; ++i) {
          launch(bound);
          if (!has_maps_of(bound)) ++wrong;
        }
      });
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace moejit::runtime
