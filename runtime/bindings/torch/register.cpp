// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/blocks.h"
#include "runtime/bindings/torch/operators.h"

#include <cstdint>
#include <cstdio>

// Registers the operators when the library is loaded, as torch.ops.load_library() expects. Nothing
// may throw here: the dynamic loader could not catch it.

namespace moejit::torch {
namespace {

// Kernels follow the conventions of torch 2.10, the oldest supported version.
constexpr uint64_t kVersion = (uint64_t{2} << 56) | (uint64_t{10} << 48);

constexpr const char* kSecondCopy =
    "the operators of moejit are registered already: another copy of libmoejit_torch.so is loaded "
    "in this process, and serves them; load one copy only";
constexpr const char* kRefused =
    "torch refused an operator of moejit, and has printed why; moejit needs torch 2.10 or newer";

// Returns why the operators are not registered, or NULL.
const char* register_operators() noexcept {
  // torch refuses a second owner of the namespace. In that case nothing else may be registered: two
  // kernels of one operator would end the process later.
  LibraryOpaque* schemas = nullptr;
  if (aoti_torch_library_init_def("moejit", "", 0, &schemas) != 0) return kSecondCopy;
  for (const Operator& each : kOperators)
    if (aoti_torch_library_def(schemas, each.schema) != 0) return kRefused;
  for (const char* key : {"CPU", "CUDA"}) {
    LibraryOpaque* kernels = nullptr;
    if (aoti_torch_library_init_impl("moejit", key, "", 0, &kernels) != 0) return kRefused;
    for (const Operator& each : kOperators)
      if (torch_library_impl(kernels, each.name, each.kernel, kVersion) != 0) return kRefused;
  }
  return nullptr;
}

const char* load_error = nullptr;

__attribute__((constructor)) void load() {
  load_error = register_operators();
  if (load_error != nullptr) std::fprintf(stderr, "moejit: %s\n", load_error);
}

}  // namespace
}  // namespace moejit::torch

extern "C" {

// Returns why loading the library did not register its operators, or NULL if it did.
__attribute__((visibility("default"))) const char* moejit_torch_load_error() {
  return moejit::torch::load_error;
}

// Makes later calls set all bytes of what they make to a value, before kernels write there. 0 is
// for tests that compare every byte, 255 finds whoever reads what nobody wrote. A negative value
// ends it.
__attribute__((visibility("default"))) void moejit_torch_fill_blocks(int32_t value) {
  moejit::torch::fill_blocks(value);
}

}  // extern "C"
