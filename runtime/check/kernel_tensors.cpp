// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_tensors.h"

#include "runtime/check/tensor_core_rule.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

namespace moejit::check {

using runtime::copy_elements;
using runtime::HostTensor;
using runtime::TensorMap;

std::string_view KernelTensors::name(std::string_view role) const {
  for (const compiler::KernelArgument& argument : kernel_.arguments)
    if (argument.role == role) return argument.tensor;
  const std::string map_role = fmt::format("{}_map", role);
  for (const compiler::TensorMapPlan& map : kernel_.tensor_maps)
    if (map.role == map_role) return map.tensor;
  return {};
}

const HostTensor* KernelTensors::before(std::string_view role) const {
  const auto found = inputs_.find(name(role));
  return found == inputs_.end() ? nullptr : &found->second;
}

const HostTensor* KernelTensors::find_named(std::string_view name) const {
  for (const TensorMap* const tensors : {&results_, &inputs_})
    if (const auto found = tensors->find(name); found != tensors->end()) return &found->second;
  return nullptr;
}

reference::QuantizedRows KernelTensors::rows(std::string_view role) const {
  const HostTensor& codes = at(role);
  return {codes.shape[0], codes.shape[1], copy_elements<uint8_t>(codes),
          copy_elements<float>(at(fmt::format("{}_scale_inv", role))),
          tensor_core_rule(plan_.target)};
}

reference::QuantizedWeights KernelTensors::weights(std::string_view role, int64_t sections) const {
  const HostTensor& codes = at(role);
  return {codes.shape[0],
          codes.shape[1],
          codes.shape[2],
          sections,
          copy_elements<uint8_t>(codes),
          copy_elements<float>(at(fmt::format("{}_scale_inv", role)))};
}

std::vector<float> KernelTensors::probs() const {
  return has("probs") ? trial::probabilities(at("probs")) : std::vector<float>{};
}

reference::Route KernelTensors::route() const {
  reference::Route route;
  if (has("counts")) route.counts = copy_elements<int32_t>(at("counts"));
  if (has("offs")) route.offs = copy_elements<int32_t>(at("offs"));
  if (has("row_map")) route.row_map = copy_elements<int32_t>(at("row_map"));
  return route;
}

void CheckList::add(TensorCheck check) {
  if (names_.insert(check.tensor).second) checks_.push_back(std::move(check));
}

void CheckList::add(std::vector<TensorCheck> checks) {
  for (TensorCheck& check : checks) add(std::move(check));
}

void CheckList::add_part(TensorCheck check) {
  const auto found = std::ranges::find(checks_, check.tensor, &TensorCheck::tensor);
  if (found == checks_.end()) return add(std::move(check));
  found->compared += check.compared;
  found->differing += check.differing;
  // The joined verdict is the worst part's: a failed one, else one that is not exact.
  if (!found->has_passed || (check.has_passed && check.verdict == "exact")) return;
  found->has_passed = check.has_passed;
  found->verdict = std::move(check.verdict);
  found->message = std::move(check.message);
}

namespace {

int64_t columns_of(const HostTensor& tensor) {
  return tensor.shape.size() < 2 ? 1 : tensor.shape.back();
}

}  // namespace

void CheckList::codes(const KernelTensors& tensors, std::string_view role,
                      const std::vector<uint8_t>& wanted) {
  const std::string_view name = tensors.name(role);
  add(check_of(name, testing::compare_e4m3({name, columns_of(tensors.at(role))},
                                           tensors.view<uint8_t>(role), wanted)));
}

void CheckList::bytes(const KernelTensors& tensors, std::string_view role,
                      const std::vector<uint8_t>& wanted) {
  const std::string_view name = tensors.name(role);
  add(check_of(name, testing::compare_bytes({name, columns_of(tensors.at(role))},
                                            tensors.view<uint8_t>(role), wanted)));
}

void CheckList::floats(const KernelTensors& tensors, std::string_view role,
                       const std::vector<float>& wanted) {
  if (tensors.at(role).dtype == compiler::DType::kF8E8M0) {
    std::vector<uint8_t> words(wanted.size() * sizeof(float));
    std::memcpy(words.data(), wanted.data(), words.size());
    return bytes(tensors, role, words);
  }
  const std::string_view name = tensors.name(role);
  add(check_of(name, testing::compare_f32({name, columns_of(tensors.at(role))},
                                          tensors.view<float>(role), wanted)));
}

void CheckList::integers(const KernelTensors& tensors, std::string_view role,
                         const std::vector<int32_t>& wanted) {
  const std::string_view name = tensors.name(role);
  add(check_of(name, testing::compare_i32({name, columns_of(tensors.at(role))},
                                          tensors.view<int32_t>(role), wanted)));
}

void CheckList::bf16(const KernelTensors& tensors, std::string_view role,
                     const std::vector<uint16_t>& wanted) {
  const std::string_view name = tensors.name(role);
  add(check_of(name, testing::compare_bf16({name, columns_of(tensors.at(role))},
                                           tensors.view<uint16_t>(role), wanted)));
}

void CheckList::rows(const KernelTensors& tensors, std::string_view role,
                     const reference::QuantizedRows& wanted) {
  codes(tensors, role, wanted.q);
  floats(tensors, role == "kept_output" ? "kept_scale_inv" : fmt::format("{}_scale_inv", role),
         wanted.scale_inv);
}

void CheckList::status(const KernelTensors& tensors, uint32_t bits, uint32_t wanted) {
  status_ |= wanted;
  const uint32_t got = tensors.view<uint32_t>("status").front();
  add_part(check_number(tensors.name("status"), got & bits, status_ & bits));
}

bool CheckList::all_passed() const {
  return std::ranges::all_of(checks_, &TensorCheck::has_passed);
}

}  // namespace moejit::check
