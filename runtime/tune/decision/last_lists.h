// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal.h"

#include <map>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moejit::tune {

// The GPU, and the problem or step, that entries of a journal belong to. It points into the
// journal.
using EntryKey = std::pair<std::string_view, std::string_view>;

inline EntryKey key_of(const Journal& journal, const Entry& entry) {
  return {journal.sessions[entry.session].gpu, entry.problem};
}

// The last list of each problem or step: CandidateList or StepList. It points into the journal.
template <typename List>
struct LastLists {
  std::vector<EntryKey> order;  // in which the first lists come
  std::map<EntryKey, const List*> last;
};

template <typename List>
LastLists<List> last_lists(const Journal& journal) {
  LastLists<List> lists;
  for (const Entry& entry : journal.entries) {
    const auto* const list = std::get_if<List>(&entry.event);
    if (list == nullptr) continue;
    const EntryKey key = key_of(journal, entry);
    if (lists.last.insert_or_assign(key, list).second) lists.order.push_back(key);
  }
  return lists;
}

}  // namespace moejit::tune
