// SPDX-License-Identifier: Apache-2.0
// Copies the tokens that come to this rank out of the stage, each chunk as soon as it is there.
MOEJIT_KERNEL(32, 2, receive, Params) {
  const int32_t t = thread_index();
  const int32_t chunks = params.tokens_capacity / kChunk;
  const uint32_t epoch = load(global(params.epochs)) + 1;
  const uint64_t deadline = params.timeout == 0 ? 0 : global_nanoseconds() + params.timeout;
  for (int32_t part = cta_index(); part < params.ranks * chunks; part += cta_count()) {
    const int32_t source = part / chunks;
    if (t == 0) {
      const auto flag = global<const uint32_t>(params.data_flags[params.rank]) + part;
      const uint32_t seen = wait_system(flag, epoch, deadline);
      store(shared<uint32_t>(0), has_reached(seen, epoch) ? 1u : 0u);
      if (!has_reached(seen, epoch)) atomic_or(global(params.status), 1u << source);
    }
    sync_cta();
    if (load(shared<uint32_t>(0)) == 0) return;
    const int32_t token = part % chunks * kChunk + t;
    const bool comes_here = (token + source) % params.ranks == params.rank;
    if (t < kChunk && token < params.tokens_of[source] && comes_here) {
      const int32_t slot = source * params.tokens_capacity + token;
      const auto stage = global<const Bytes16>(params.stage[params.rank]);
      store(global(params.received) + slot, load_peer_data(stage + slot));
    }
    sync_cta();
  }
}
