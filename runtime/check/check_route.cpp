// SPDX-License-Identifier: Apache-2.0

#include "runtime/check/kernel_checks.h"
#include "runtime/trial/routing_tensors.h"

namespace moejit::check {

namespace {

using runtime::HostTensor;

// Compares the status bits that routing sets.
void check_status(const KernelTensors& tensors, const reference::Route& route, CheckList& list) {
  constexpr uint32_t kOfRoute =
      reference::kBadExpertId | reference::kRowOverflow | reference::kTooManyExperts;
  list.status(tensors, kOfRoute, route.status);
}

void check_groups(const KernelTensors& tensors, const reference::Route& route, int64_t tokens,
                  CheckList& list) {
  list.integers(tensors, "counts", route.counts);
  list.integers(tensors, "offs", route.offs);
  if (tensors.has("row_map")) list.integers(tensors, "row_map", route.row_map);
  if (tensors.has("colwise_offs")) {
    std::vector<int32_t> starts = {0};
    for (const int32_t count : route.counts)
      starts.push_back(starts.back() +
                       static_cast<int32_t>(reference::block_count(count) * reference::kBlock));
    list.integers(tensors, "colwise_offs", starts);
  }
  if (tensors.has("status")) check_status(tensors, route, list);
  if (tensors.has("saved_tokens"))
    list.add(check_number(tensors.name("saved_tokens"),
                          tensors.view<int64_t>("saved_tokens").front(), tokens));
}

}  // namespace

void check_kernel(const compiler::RouteSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const HostTensor& ids = tensors.at("topk_ids");
  const int64_t tokens = ids.shape.front();
  check_groups(tensors,
               reference::route(trial::expert_ids(ids), tokens,
                                {.experts = spec.local_experts,
                                 .top_k = spec.top_k,
                                 .alignment = spec.splits_alignment,
                                 .max_rows = tensors.bounds().max_permuted_rows,
                                 .ignores_foreign = spec.ignores_foreign}),
               tokens, list);
}

void check_kernel(const compiler::RouteMapSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  const HostTensor& map = tensors.at("topk_ids");
  const int64_t tokens = map.shape.front();
  check_groups(tensors,
               reference::route_map(runtime::elements<uint8_t>(map), tokens,
                                    {.experts = spec.local_experts,
                                     .top_k = spec.top_k,
                                     .alignment = spec.splits_alignment,
                                     .max_rows = tensors.bounds().max_permuted_rows}),
               tokens, list);
}

void check_kernel(const compiler::SplitRowsSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  const int64_t tokens = tensors.find_named("x")->shape.front();
  const std::vector<int64_t> sizes = trial::expert_ids(tensors.at("tokens_per_expert"));
  check_groups(tensors,
               reference::split_rows(sizes, tokens,
                                     {.experts = spec.local_experts,
                                      .top_k = 1,
                                      .alignment = spec.splits_alignment,
                                      .max_rows = tensors.bounds().max_permuted_rows}),
               tokens, list);
}

// Rows are compared with where the kernel says that they go.
void check_kernel(const compiler::RoutePermuteSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  check_kernel(spec.route, tensors, list);
  if (list.all_passed()) check_kernel(spec.rows, tensors, list);
}

// One rank does not know what its peers have sent. Tests of groups compare whole exchanges.
void check_kernel(const compiler::ExchangeChoicesSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::DispatchRowsSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::DispatchPermuteSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::RouteDispatchPermuteSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::AwaitRowsSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::CombineRowsSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::PackChoicesSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::TakeChoicesSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::CompareTokensSpec&, const KernelTensors&, CheckList&) {}
void check_kernel(const compiler::CombineArrivedSpec&, const KernelTensors&, CheckList&) {}

}  // namespace moejit::check
