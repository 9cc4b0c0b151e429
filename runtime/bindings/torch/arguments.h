// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/tensor.h"

#include <string_view>
#include <utility>
#include <vector>

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

// Owns the list of tensors that torch hands an operator, or takes as its result.
class TensorList {
 public:
  explicit TensorList(Value argument) noexcept : handle_(reinterpret_cast<ListOpaque*>(argument)) {}
  // Makes an empty list with room for so many tensors.
  static TensorList make(std::size_t size) {
    ListOpaque* list = nullptr;
    check_torch(torch_new_list_reserve_size(size, &list), "torch_new_list_reserve_size");
    return TensorList(reinterpret_cast<Value>(list));
  }
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;
  ~TensorList() {
    if (handle_ != nullptr) torch_delete_list(handle_);
  }

  // Returns references to the tensors, which are still to be described.
  std::vector<Tensor> tensors() const {
    std::size_t size = 0;
    check_torch(torch_list_size(handle_, &size), "torch_list_size");
    std::vector<Tensor> tensors;
    tensors.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
      Value item = 0;
      check_torch(torch_list_get_item(handle_, i, &item), "torch_list_get_item");
      tensors.emplace_back(item);
    }
    return tensors;
  }
  void push_back(Tensor& tensor) {
    check_torch(torch_list_push_back(handle_, tensor.release()), "torch_list_push_back");
  }
  // Hands the list over to torch, as a result.
  Value release() noexcept { return reinterpret_cast<Value>(std::exchange(handle_, nullptr)); }

 private:
  ListOpaque* handle_;
};

}  // namespace moejit::torch
