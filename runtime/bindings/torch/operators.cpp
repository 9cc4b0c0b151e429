// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/operators.h"

#include "runtime/bindings/graph/plans.h"
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/call.h"
#include "runtime/bindings/torch/failure.h"

#include <string>
#include <vector>

namespace moejit::torch {
namespace {

using Arguments = std::vector<CallArgument>;

// Throws if a list has not the tensors of these arguments, or up to `more` behind them.
void check_count(const char* list, const char* call, const std::vector<Tensor>& given,
                 const Arguments& wanted, std::size_t more = 0) {
  if (given.size() >= wanted.size() && given.size() <= wanted.size() + more) return;
  fail(MOEJIT_ERROR_INVALID_VALUE,
       std::string("argument ") + list + ": the call " + call + " got " +
           std::to_string(given.size()) + " tensors, wanted " + std::to_string(wanted.size()) +
           ": " + names_of(wanted),
       "moejit.torch.run() takes them by name");
}

// Returns the arguments that the given tensors are: CallRow::named_reads if there are as many, else
// CallRow::reads. Throws if there are as many as neither has.
const Arguments& find_reads(const CallRow& row, const std::vector<Tensor>& given) {
  if (!row.named_reads.empty() && given.size() == row.named_reads.size()) return row.named_reads;
  check_count("tensors", row.name.c_str(), given, row.reads);
  return row.reads;
}

// Reads the facts of tensors and the sizes of the call. Throws if one that has elements is on
// another device than the first one.
void describe(const Arguments& arguments, std::vector<Tensor>& tensors, const Tensor& first) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (&tensors[i] != &first) tensors[i].describe(arguments[i].name.c_str());
    if (tensors[i].element_count() > 0) check_device(arguments[i].name.c_str(), tensors[i], first);
  }
}

void read_sizes(Call& call, const Arguments& arguments, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < arguments.size(); ++i) call.read_sizes(arguments[i], tensors[i]);
}

void add(Call& call, const Arguments& arguments, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < arguments.size(); ++i) call.add(arguments[i], tensors[i]);
}

// Returns the first tensor of a call, described.
Tensor& first_of(std::vector<Tensor>& tensors, std::vector<Tensor>* written) {
  if (tensors.empty() && (written == nullptr || written->empty()))
    fail(MOEJIT_ERROR_MISSING_TENSOR, "the call got no tensors");
  Tensor& first = tensors.empty() ? written->front() : tensors.front();
  first.describe("of the first argument");
  return first;
}

void call(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  const TensorList list(stack[0]);
  const Text name(stack[1]), text(stack[2]);
  std::vector<Tensor> tensors = list.tensors();
  const Tensor& first = first_of(tensors, nullptr);
  const ReadyPlan& ready = ready_plan(text.get(), first.device());
  const CallRow& row = ready.find_call(name.get().data());
  const Arguments& reads = find_reads(row, tensors);
  describe(reads, tensors, first);
  Call call(ready, row, first.device());
  read_sizes(call, reads, tensors);
  add(call, reads, tensors);
  std::vector<Tensor> made;
  made.reserve(row.writes.size());
  for (const CallArgument& argument : row.writes)
    if (!argument.is_optional) call.add(argument, made.emplace_back(call.make(argument)));
  call.run(row.name.c_str());
  TensorList results = TensorList::make(made.size());
  for (Tensor& tensor : made) results.push_back(tensor);
  stack[0] = results.release();
}

void call_in_place(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  const TensorList list(stack[0]), list_of_written(stack[1]);
  const Text name(stack[2]), text(stack[3]);
  std::vector<Tensor> tensors = list.tensors(), written = list_of_written.tensors();
  const Tensor& first = first_of(tensors, &written);
  const ReadyPlan& ready = ready_plan(text.get(), first.device());
  const CallRow& row = ready.find_call(name.get().data());
  const Arguments& reads = find_reads(row, tensors);
  check_count("written", row.name.c_str(), written, row.writes, row.is_of_all_ranks ? 1 : 0);
  describe(reads, tensors, first);
  describe(row.writes, written, first);
  Call call(ready, row, first.device());
  read_sizes(call, reads, tensors);
  read_sizes(call, row.writes, written);
  add(call, reads, tensors);
  add(call, row.writes, written);
  call.run(row.name.c_str());
}

}  // namespace

const std::array<Operator, 2> kOperators = {{
    {"call", "call(Tensor[] tensors, str call, str plan) -> Tensor[]", call},
    {"call_", "call_(Tensor[] tensors, Tensor(a!)[] written, str call, str plan) -> ()",
     call_in_place},
}};

}  // namespace moejit::torch
