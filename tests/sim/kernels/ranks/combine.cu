// SPDX-License-Identifier: Apache-2.0
// Waits for the results of all ranks, takes them, and ends the call.
MOEJIT_KERNEL(32, 1, combine, Params) {
  const int32_t t = thread_index();
  const uint32_t epoch = load(global(params.epochs)) + 1;
  const uint64_t deadline = params.timeout == 0 ? 0 : global_nanoseconds() + params.timeout;
  if (t < params.ranks) {
    const auto flag = global<const uint32_t>(params.home_flags[params.rank]) + t;
    const uint32_t seen = wait_system(flag, epoch, deadline);
    if (!has_reached(seen, epoch)) atomic_or(global(params.status), 1u << t);
  }
  sync_cta();
  if (params.timeout != 0 && load(global(params.status)) != 0) return;
  for (int32_t token = t; token < params.tokens_of[params.rank]; token += 32) {
    const auto home = global<const Bytes16>(params.home[params.rank]) + token;
    store(global(params.results) + token, load_peer_data(home));
  }
  sync_cta();
  if (t == 0) store(global(params.epochs), epoch);
}
