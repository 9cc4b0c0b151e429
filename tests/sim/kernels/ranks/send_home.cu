// SPDX-License-Identifier: Apache-2.0
// Computes, in the place of experts, and sends results to the ranks that the tokens came from, by
// bulk stores: CTA number `rank` to that rank.
MOEJIT_KERNEL(32, 2, send_home, Params) {
  const int32_t t = thread_index();
  const uint32_t epoch = load(global(params.epochs)) + 1;
  const auto rows = shared<Bytes16>(0);
  if (params.timeout != 0 && load(global(params.status)) != 0) return;
  for (int32_t home = cta_index(); home < params.ranks; home += cta_count()) {
    for (int32_t first = 0; first < params.tokens_of[home]; first += 32) {
      const int32_t token = first + t;
      const bool came_here = token < params.tokens_of[home] &&
                             (token + home) % params.ranks == params.rank;
      if (came_here) {
        Bytes16 row = load(global(params.received) + (home * params.tokens_capacity + token));
        for (uint32_t& word : row.word) word *= 3;
        store(rows + t, row);
        fence_proxy_async();
        store_bulk(global(params.home[home]) + token, rows + t, 16);
        commit_bulk_stores();
        wait_bulk_stores<0>();
      }
    }
    sync_cta();
    if (t == 0) store_release_system(global(params.home_flags[home]) + params.rank, epoch);
  }
}
