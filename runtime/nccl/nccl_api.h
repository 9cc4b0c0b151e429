// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <climits>
#include <cstddef>
#include <string>

namespace moejit::runtime {

// The interface of libnccl, written down from its documentation (NCCL 2.18, "NCCL API" and
// "Types"). So no header of NCCL is needed to build.

using NcclComm = void*;
using NcclResult = int;  // ncclResult_t, an enumeration

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclInProgress = 7;  // of communicators whose calls do not block
inline constexpr int kNcclInt8 = 0;               // of ncclDataType_t

// ncclUniqueId, which calls take by value.
struct NcclUniqueId {
  char internal[128];
};

// ncclConfig_t of NCCL 2.18. Later versions look at `size` and `version`, and have members of their
// own behind these.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = INT_MIN;  // INT_MIN and null: not set
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int unused = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 48);

// The functions of libnccl that we call, resolved at run time: nothing of moejit links to it.
struct NcclApi {
#define MOEJIT_NCCL_FUNCTION(member, symbol, parameters) NcclResult(*member) parameters = nullptr;
#include "runtime/nccl/nccl_functions.inc"
#undef MOEJIT_NCCL_FUNCTION
  const char* (*get_error_string)(NcclResult) = nullptr;
  const char* (*get_last_error)(NcclComm) = nullptr;

  int version = 0;  // 21805 = 2.18.5
};

// Opens libnccl.so.2. A success is remembered until the process ends (the library is never closed),
// a failure is not. Error kDriverMissing: it is not found, too old, or lacks a function.
Result<const NcclApi*> nccl_api();

// Returns an Error that names the call and what NCCL says of the result.
Error nccl_error(const NcclApi& api, Stage stage, const char* call, NcclResult result);

}  // namespace moejit::runtime
