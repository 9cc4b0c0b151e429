// SPDX-License-Identifier: Apache-2.0
// One forward pass from C++: description -> plan -> prepared layer -> launch.
//   embed [sim|cuda]
// docs/embedding.md explains it. A host framework brings its own memory and stream; this program
// borrows both from moejit's Device.
#include "compiler/compiler.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/prepared_plan.h"

#include <cstdio>
#include <deque>
#include <string>
#include <vector>

using namespace moejit;

namespace {

constexpr const char* kDescription = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "dtype": "bf16", "recipe": "fp8_flow", "splits_alignment": 16, "max_tokens": 64
})";
constexpr int64_t kTokens = 3;  // of this call, at most max_tokens

// Memory and shapes of everything the caller owns, in the order of the plan.
struct CallerTensors {
  std::deque<std::vector<int64_t>> shapes;
  std::vector<runtime::TensorRef> refs;
};

Result<CallerTensors> allocate(const compiler::Plan& plan, runtime::Device& device) {
  CallerTensors tensors;
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    if (tensor.role == compiler::TensorRole::kWorkspace) continue;
    std::vector<int64_t>& shape = tensors.shapes.emplace_back();
    for (const compiler::Dim& dim : tensor.shape)
      shape.push_back(dim.symbol == "T" ? kTokens : dim.value);
    MOEJIT_TRY_ASSIGN(void* const data, device.allocate(tensor.bytes));
    MOEJIT_TRY(device.fill(data, std::byte{0}, tensor.bytes, nullptr));
    tensors.refs.push_back({tensor.name, tensor.dtype, shape, data});
  }
  return tensors;
}

Result<void> run(const std::string& target) {
  MOEJIT_TRY_ASSIGN(const auto device,
                    target == "sim" ? runtime::open_simulator() : runtime::open_cuda_device());
  MOEJIT_TRY_ASSIGN(const auto layer, compiler::parse_layer(kDescription, "tiny"));
  MOEJIT_TRY_ASSIGN(const auto plan, compiler::plan_layer(layer, device->target()));
  MOEJIT_TRY_ASSIGN(const auto engine, runtime::Engine::create());
  MOEJIT_TRY_ASSIGN(const auto prepared, runtime::PreparedPlan::prepare(plan, *engine, *device));

  // From here on nothing is compiled, loaded or allocated by moejit.
  MOEJIT_TRY_ASSIGN(const CallerTensors tensors, allocate(plan, *device));
  MOEJIT_TRY_ASSIGN(void* const workspace, device->allocate(prepared->plan().workspace_bytes));
  runtime::Stream stream = nullptr;
  MOEJIT_TRY(prepared->call("update_weights", tensors.refs, {}, stream));
  MOEJIT_TRY(prepared->call("forward", tensors.refs, {workspace, prepared->plan().workspace_bytes},
                            stream));
  MOEJIT_TRY(device->synchronize(stream));

  const runtime::EngineCounters counters = engine->counters();
  std::printf("%lld tokens on %s: %lld kernels compiled, %lld from the cache\n",
              static_cast<long long>(kTokens), device->name().c_str(),
              static_cast<long long>(counters.compiled),
              static_cast<long long>(counters.from_cache));
  for (const runtime::TensorRef& tensor : tensors.refs) device->release(tensor.data);
  device->release(workspace);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto result = run(argc > 1 ? argv[1] : "sim");
  if (result) return 0;
  std::fprintf(stderr, "%s\n", to_string(result.error()).c_str());
  return exit_code_of(result.error().code);
}
