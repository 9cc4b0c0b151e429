// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/tensor.h"

#include <array>
#include <string_view>
#include <utility>

namespace moejit::torch {

// Owns the string that torch hands an operator.
class Text {
 public:
  explicit Text(Value argument) noexcept : handle_(reinterpret_cast<StringOpaque*>(argument)) {}
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() { torch_delete_string(handle_); }

  std::string_view get() const {
    std::size_t length = 0;
    const char* text = nullptr;
    check_torch(torch_string_length(handle_, &length), "torch_string_length");
    check_torch(torch_string_c_str(handle_, &text), "torch_string_c_str");
    return {text, length};
  }

 private:
  StringOpaque* handle_;
};

// The arguments of an operator: tensors, then flags, then the text of a plan. Owns all of them
// before it reads the first, so that none leaks if one cannot be read.
template <std::size_t kTensors, std::size_t kFlags = 0>
class Arguments {
 public:
  // Takes over the values of `stack`. Tensors are to be described before they are used.
  explicit Arguments(const Value* stack)
      : tensors_(take(stack, std::make_index_sequence<kTensors>())),
        flags_(stack + kTensors),
        text_(stack[kTensors + kFlags]) {}
  // Takes over the values of `stack` and describes the tensors.
  Arguments(const Value* stack, const std::array<const char*, kTensors>& names) : Arguments(stack) {
    for (std::size_t i = 0; i < kTensors; ++i) describe(i, names[i]);
  }

  // Reads the facts of a tensor, whose name is `name` in errors. Throws if it has elements and is
  // on another device than the first one.
  void describe(std::size_t index, const char* name) {
    tensors_[index].describe(name);
    if (tensors_[index].element_count() > 0) check_device(name, tensors_[index], tensors_[0]);
  }

  const std::array<Tensor, kTensors>& tensors() const { return tensors_; }
  // Returns a flag. Only the lowest byte of a bool's value counts. Read it before results are
  // stored.
  bool flag(std::size_t index) const { return (flags_[index] & 0xff) != 0; }
  std::string_view text() const { return text_.get(); }

 private:
  template <std::size_t... kIndices>
  static std::array<Tensor, kTensors> take(const Value* stack,
                                           std::index_sequence<kIndices...> /*indices*/) {
    return {Tensor(stack[kIndices])...};
  }

  std::array<Tensor, kTensors> tensors_;
  const Value* flags_;
  Text text_;
};

}  // namespace moejit::torch
