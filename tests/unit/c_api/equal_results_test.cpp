// SPDX-License-Identifier: Apache-2.0
// The C interface gives the bits that the C++ API gives.
#include "compiler/compiler.h"
#include "runtime/prepared_plan.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/c_api/sim_layer.h"

#include <deque>
#include <map>

namespace moejit::testing {
namespace {

using compiler::TensorRole;
using Bytes = std::vector<std::byte>;
using Outputs = std::map<std::string, Bytes>;

Outputs of_c_api() {
  SimLayer layer;
  EXPECT_TRUE(is_ok(layer.open()));
  const moejit_call call = layer.call();
  EXPECT_TRUE(is_ok(moejit_layer_update_weights(layer.layer(), &call)));
  EXPECT_TRUE(is_ok(moejit_layer_forward(layer.layer(), &call)));
  EXPECT_TRUE(is_ok(moejit_layer_backward(layer.layer(), MOEJIT_GRADIENT_OVERWRITE, &call)));
  EXPECT_TRUE(is_ok(moejit_layer_backward(layer.layer(), MOEJIT_GRADIENT_ADD, &call)));
  Outputs outputs;
  for (const char* name : {"y", "status", "dx", "dprobs", "dw1", "dw2", "w1_q", "w2_scale_inv"})
    outputs[name] = layer.read(name);
  return outputs;
}

Result<void> run_in_cpp(Outputs& outputs) {
  MOEJIT_TRY_ASSIGN(const auto device, runtime::open_simulator({.workers = 1}));
  MOEJIT_TRY_ASSIGN(const auto layer, compiler::parse_layer(kTinyLayer, "tiny"));
  MOEJIT_TRY_ASSIGN(const auto plan, compiler::plan_layer(layer, device->target()));
  MOEJIT_TRY_ASSIGN(const auto engine, make_test_engine());
  MOEJIT_TRY_ASSIGN(const auto prepared, runtime::PreparedPlan::prepare(plan, *engine, *device));
  std::deque<std::vector<int64_t>> shapes;
  std::vector<runtime::TensorRef> tensors;
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    if (!is_callers(tensor.role)) continue;
    std::vector<int64_t>& shape = shapes.emplace_back();
    int64_t elements = 1;
    for (const compiler::Dim& dim : tensor.shape) {
      shape.push_back(dim.symbol == "T" ? kSimTokens : dim.value);
      elements *= shape.back();
    }
    const int64_t bytes = elements * size_bytes(tensor.dtype);
    MOEJIT_TRY_ASSIGN(void* const data, device->allocate(bytes));
    tensors.push_back({tensor.name, tensor.dtype, shape, data});
    const bool is_given = tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight;
    if (is_given)
      MOEJIT_TRY(device->copy_to_device(
          data, input_values(tensor.name, to_string(tensor.dtype), elements).data(), bytes));
    if (tensor.name == "status") MOEJIT_TRY(device->fill(data, std::byte{0}, bytes, nullptr));
    outputs[tensor.name] = Bytes(static_cast<std::size_t>(bytes));
  }
  runtime::CallMemory memory{.workspace_bytes = plan.workspace_bytes,
                             .saved_bytes = plan.saved_bytes};
  MOEJIT_TRY_ASSIGN(memory.workspace, device->allocate(plan.workspace_bytes));
  MOEJIT_TRY_ASSIGN(memory.saved, device->allocate(plan.saved_bytes));
  MOEJIT_TRY(prepared->call("update_weights", tensors, {}, nullptr));
  MOEJIT_TRY(prepared->call("forward", tensors, memory, nullptr));
  MOEJIT_TRY(prepared->call("backward", tensors, memory, nullptr));
  MOEJIT_TRY(prepared->call("backward+add", tensors, memory, nullptr));
  for (const runtime::TensorRef& tensor : tensors) {
    Bytes& bytes = outputs[std::string(tensor.name)];
    MOEJIT_TRY(device->copy_to_host(bytes.data(), tensor.data, static_cast<int64_t>(bytes.size())));
  }
  return {};
}

TEST(CApiResults, AreTheBitsOfTheCppApi) {
  Outputs wanted;
  ASSERT_TRUE(succeeded(run_in_cpp(wanted)));
  const Outputs got = of_c_api();
  for (const auto& [name, bytes] : got) {
    SCOPED_TRACE(name);
    EXPECT_EQ(bytes, wanted[name]);
    const bool is_all_zero = bytes == Bytes(bytes.size());
    EXPECT_EQ(is_all_zero, name == "status");
  }
}

}  // namespace
}  // namespace moejit::testing
