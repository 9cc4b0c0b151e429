// SPDX-License-Identifier: Apache-2.0
// Sends this rank's tokens to the ranks that they go to, chunk after chunk, and tells all ranks of
// each chunk. A rank without tokens tells of empty chunks.
MOEJIT_KERNEL(32, 2, push, Params) {
  const int32_t t = thread_index();
  const int32_t chunks = params.tokens_capacity / kChunk;
  const uint32_t epoch = load(global(params.epochs)) + 1;
  for (int32_t chunk = cta_index(); chunk < chunks; chunk += cta_count()) {
    const int32_t token = chunk * kChunk + t;
    if (t < kChunk && token < params.tokens_of[params.rank]) {
      const int32_t to = (token + params.rank) % params.ranks;
      const auto slot = global(params.stage[to]) + (params.rank * params.tokens_capacity + token);
      store(slot, load(global(params.tokens) + token));
    }
    sync_cta();
    if (t < params.ranks) {
      fence_system();
      store_relaxed_system(global(params.data_flags[t]) + (params.rank * chunks + chunk), epoch);
    }
    sync_cta();
  }
}
