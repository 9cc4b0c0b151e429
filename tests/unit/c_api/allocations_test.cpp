// SPDX-License-Identifier: Apache-2.0
// A call of the C interface takes nothing from the heap.
#include "compiler/compiler.h"
#include "runtime/prepared_plan.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/c_api/counted_malloc.h"
#include "tests/unit/c_api/sim_layer.h"
#include "tests/unit/c_api/tensor_fixture.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace moejit::testing {
namespace {

// Of this thread.
template <typename Function>
int64_t allocations_of(Function&& function) {
  const int64_t before = allocations();
  function();
  return allocations() - before;
}

TEST(CApiAllocations, AreCountedInTheLibraryToo) {
  moejit_plan* layer = nullptr;
  EXPECT_GT(allocations_of([&] {
              moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", nullptr, &layer);
            }),
            100);
  moejit_plan_destroy(layer);
}

TEST(CApiAllocations, AreNoneToReadTheTensorsOfACall) {
  TensorFixture fixture(64, {kDLCUDA, 0});
  std::array<int64_t, 2> strides = {2, 1};
  for (DLTensor& tensor : fixture.tensors) tensor.strides = strides.data();
  bool is_read = false;
  EXPECT_EQ(allocations_of([&] {
              const moejit_call call = {.struct_size = sizeof(call),
                                        .tensors = fixture.named.data(),
                                        .tensor_count = fixture.named.size()};
              bindings::GivenCall given;
              const auto result =
                  bindings::read_call(fixture.layer, fixture.plan->calls[0], call, given);
              is_read = result.has_value() && given.tensors.span().size() == 64;
            }),
            0);
  EXPECT_TRUE(is_read);
}

// A layer of the C++ API that is called with the tensors of a SimLayer.
class CppLayer {
 public:
  Result<void> open(SimLayer& sim) {
    MOEJIT_TRY_ASSIGN(device_, runtime::open_simulator({.workers = 1}));
    MOEJIT_TRY_ASSIGN(const auto layer, compiler::parse_layer(kTinyLayer, "tiny"));
    MOEJIT_TRY_ASSIGN(plan_, compiler::plan_layer(layer, device_->target()));
    MOEJIT_TRY_ASSIGN(const auto engine, make_test_engine());
    MOEJIT_TRY_ASSIGN(prepared_, runtime::PreparedPlan::prepare(plan_, *engine, *device_));
    const moejit_call call = sim.call();
    for (const moejit_tensor& tensor : std::span(call.tensors, call.tensor_count))
      tensors_.push_back({.name = tensor.name,
                          .dtype = find_tensor(plan_, tensor.name)->dtype,
                          .shape = {tensor.tensor->shape, std::size_t(tensor.tensor->ndim)},
                          .data = tensor.tensor->data});
    memory_ = {.workspace = call.workspace,
               .workspace_bytes = call.workspace_bytes,
               .saved = call.saved,
               .saved_bytes = call.saved_bytes};
    return {};
  }
  bool forward() { return prepared_->call("forward", tensors_, memory_, nullptr).has_value(); }

 private:
  std::unique_ptr<runtime::Device> device_;
  compiler::Plan plan_;
  std::unique_ptr<runtime::PreparedPlan> prepared_;
  std::vector<runtime::TensorRef> tensors_;
  runtime::CallMemory memory_;
};

// The simulator allocates where the GPU does not; it does so as often for either interface.
TEST(CApiAllocations, AreAsManyAsOfTheCppApi) {
  SimLayer sim;
  ASSERT_TRUE(is_ok(sim.open()));
  const moejit_call call = sim.call();
  ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim.layer(), &call)));
  CppLayer cpp;
  ASSERT_TRUE(succeeded(cpp.open(sim)));
  bool is_done = true;
  const auto forward = [&] { is_done &= cpp.forward(); };
  const auto c_forward = [&] { is_done &= moejit_layer_forward(sim.layer(), &call) == MOEJIT_OK; };
  forward();  // the simulator keeps what its first launches made
  c_forward();
  EXPECT_EQ(allocations_of(c_forward), allocations_of(forward));
  EXPECT_TRUE(is_done);
}

}  // namespace
}  // namespace moejit::testing
