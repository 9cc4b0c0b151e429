// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of the C interface for layers whose experts a group of ranks shares. The ranks are GPUs
// of one host that reach each other's memory, or GPUs of any hosts between which NCCL moves the
// bytes. docs/expert-parallelism.md explains groups, <moejit/moejit.h> says what holds for all
// functions and records.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

// One rank's end of a group.
typedef struct moejit_group moejit_group;

// The plan of one rank's part of a layer, which moejit_plan_create() makes with
// MOEJIT_KIND_GROUP_LAYER from a description with "expert_parallel". Its tensors are this rank's:
// its tokens, and the weights and gradients of its experts. Tensors with MOEJIT_ROLE_GROUP lie in
// the memory of the group.

// Plans rank `rank` of a group's layer: calls moejit_plan_create() with this rank and
// MOEJIT_KIND_GROUP_LAYER in the options. `options` may be NULL.
static inline moejit_error_code moejit_group_layer_create(const char* json, size_t json_bytes,
                                                          const char* target, int64_t rank,
                                                          const moejit_plan_options* options,
                                                          moejit_plan** layer) {
  moejit_plan_options given = {sizeof(moejit_plan_options), NULL, 0, 0, NULL, 0, 0, 0};
  if (options != NULL) given = *options;
  given.kind = MOEJIT_KIND_GROUP_LAYER;
  given.rank = rank;
  return moejit_plan_create(json, json_bytes, target, &given, layer);
}

// The memory of one rank, as this process reaches it. It may be a peer pointer of torch's symmetric
// memory, of NCCL windows, of NVSHMEM, or of another GPU of this process.
typedef struct moejit_group_member {
  void* base;     // a multiple of 256
  int64_t bytes;  // at least memory_bytes
  const char*
      identity;  // of the rank's layer; NULL in all members: the caller compares them itself
} moejit_group_member;

// Makes this rank's end of a group on a device. members[r] is the memory of rank r; it stays the
// caller's and must live until all ranks are done with it. Fills this rank's memory with zeros and
// waits until that is done. No rank may make a call before all have adopted. Layers whose exchanges
// are equal may share a group. So may layers that lack some of the passes or gradients of the
// group's layer. Errors: MOEJIT_ERROR_INVALID_VALUE if there are not as many members as ranks, or
// if memory is null, unaligned, too small, or given twice. _TENSOR_MISMATCH, with the field and the
// ranks: identities differ.
MOEJIT_API moejit_error_code moejit_group_adopt(const moejit_plan* layer, moejit_device* device,
                                                const moejit_group_member* members,
                                                size_t member_count, moejit_group** group);

// Where and until when the processes of a group meet.
typedef struct moejit_rendezvous_place {
  size_t struct_size;
  const char* path;     // of a Unix socket, at most 107 bytes; nothing may exist there before
  int64_t deadline_ms;  // of the whole meeting; 0: 60000
} moejit_rendezvous_place;

// Makes this rank's end of a group whose ranks are processes, on a GPU. The group has memory of its
// own: the function allocates this rank's, meets the others at the place and maps their memory. It
// returns when all ranks have done so much; from then on each may make calls. It ends at the
// deadline, whatever the others do, and leaves nothing after an error. Errors are told on all
// ranks. MOEJIT_ERROR_INTERRUPTED names ranks that did not come in time, or left. _INVALID_VALUE:
// the path cannot be used, two processes have one rank or one GPU, or the numbers of ranks differ.
// _TENSOR_MISMATCH, with the field and the ranks: the layers differ. _FILE_WRITE: no socket can be
// made at the path. _UNSUPPORTED: no link joins the GPUs, or the device is the simulator. Also
// _OUT_OF_MEMORY.
MOEJIT_API moejit_error_code moejit_group_open(const moejit_plan* layer, moejit_device* device,
                                               const moejit_rendezvous_place* place,
                                               moejit_group** group);
// Meets the other ranks again. When a rank's process is gone, a new one opens the group in its
// place, and all others reopen it. Prepared layers and recorded graphs stay valid. Waits for the
// device; no rank may be in a call. Errors: all of moejit_group_open(), after which it may be tried
// again; MOEJIT_ERROR_INVALID_STATE for a group that was adopted.
MOEJIT_API moejit_error_code moejit_group_reopen(moejit_group* group,
                                                 const moejit_rendezvous_place* place);

// Bytes of the id by which the ranks of a group over NCCL find each other.
enum { MOEJIT_NCCL_ID_BYTES = 128 };
// Makes an NCCL id. One rank calls it, and the caller sends the bytes to all other ranks by means
// of its own. Opens libnccl.so.2, 2.18 or later, on first use. Errors: MOEJIT_ERROR_DRIVER_MISSING
// without it; _DRIVER in NCCL's words.
MOEJIT_API moejit_error_code moejit_nccl_make_id(uint8_t* id);

// Makes this rank's end of a group whose bytes NCCL moves, between GPUs of any hosts. The layer has
// "transport": "nccl". `id` has MOEJIT_NCCL_ID_BYTES. Waits until all ranks have come, and then
// until all have told what their layers are. Each wait lasts at most `deadline_ms` milliseconds (0:
// 60000). Devices of moejit_device_open_simulator_group() meet by an id too: any bytes that no
// other group uses. The simulator moves the bytes then, and nothing waits.
// MOEJIT_ERROR_INTERRUPTED: ranks did not come in time. _TENSOR_MISMATCH, with the field and the
// ranks: the layers differ. _UNSUPPORTED: the layer has another transport, or the device is a
// simulator of one GPU. _INVALID_VALUE: a simulated rank has used the id before. Also all errors of
// moejit_nccl_make_id(), and _OUT_OF_MEMORY.
MOEJIT_API moejit_error_code moejit_group_open_nccl(const moejit_plan* layer, moejit_device* device,
                                                    const uint8_t* id, int64_t deadline_ms,
                                                    moejit_group** group);
// Makes a group over NCCL from the caller's communicator. That is an ncclComm_t of the libnccl.so.2
// that this process has, with the ranks of the layer, on the device's GPU. The caller makes no
// other call with it while calls of the group may be under way, and destroys it after the group.
// Waits until all ranks have told what their layers are. If a rank is lost, only an ncclCommAbort()
// of the caller ends the wait; moejit_group_abort() does not call it. Errors:
// MOEJIT_ERROR_INVALID_VALUE for NULL, and for a communicator of other ranks; _TENSOR_MISMATCH;
// _UNSUPPORTED as above, and for any simulator; _DRIVER_MISSING, _DRIVER; _OUT_OF_MEMORY.
MOEJIT_API moejit_error_code moejit_group_adopt_nccl(const moejit_plan* layer,
                                                     moejit_device* device, void* communicator,
                                                     moejit_group** group);
// Ends calls of a group over NCCL that wait for a rank which does not come; any thread may call it.
// What the calls computed means nothing, and further calls are MOEJIT_ERROR_INVALID_STATE: open
// another group on all ranks. Returns after 3 s at most. NCCL may then still wait, in a thread of
// its own, until recorded graphs of such calls are destroyed. Does nothing to other groups.
MOEJIT_API moejit_error_code moejit_group_abort(moejit_group* group);

typedef struct moejit_group_info {
  size_t struct_size;
  int64_t ranks;
  int64_t rank;
  int64_t memory_bytes;     // of each rank, memory_bytes of the plan
  int64_t allocated_bytes;  // for this rank, in the driver's steps (2 MiB); 0 if adopted
} moejit_group_info;
MOEJIT_API moejit_error_code moejit_group_get_info(moejit_group* group, moejit_group_info* info);

// Destroys a group. If the group has memory of its own, waits for the device and releases the
// memory. Later calls of layers that were prepared in the group are MOEJIT_ERROR_INVALID_STATE.
MOEJIT_API void moejit_group_destroy(moejit_group* group);

// Bits of the status word of a group, beside the MOEJIT_STATUS_... bits of moejit_calls.h.
// MOEJIT_STATUS_SILENT_RANK: a rank was not heard of in time. MOEJIT_STATUS_FIRST_RANK << r: it was
// rank r.
enum { MOEJIT_STATUS_SILENT_RANK = 256, MOEJIT_STATUS_FIRST_RANK = 65536 };

// Returns the status word after all earlier calls on the default stream; before, wait for calls on
// other streams. All ranks have the same word after a call, but for silent ranks. If a rank was
// silent, calls are MOEJIT_ERROR_INVALID_STATE until moejit_group_reset().
MOEJIT_API moejit_error_code moejit_group_status(moejit_group* group, uint32_t* status);
// Clears the word, in the order of the stream. All ranks clear it between the same two calls.
MOEJIT_API moejit_error_code moejit_group_clear_status(moejit_group* group, void* stream);
// Makes a group work again after a silent rank or a call that failed in the middle. No rank may be
// in a call, and none may make one before all are reset.
MOEJIT_API moejit_error_code moejit_group_reset(moejit_group* group);

// Compiles and loads the plan's kernels for the group's device, as moejit_plan_prepare() does.
// MOEJIT_ERROR_INVALID_VALUE: the group was adopted for another rank or another exchange;
// _UNSUPPORTED for a plan that is not of a group.
//
// All ranks make the calls with moejit_call_info::is_of_all_ranks in the same order. Each rank has
// a T of its own from 0 to max_tokens. A rank's calls are on one stream, or on streams that wait
// for each other. Updates of weights and scales need no other rank. "topk_ids" are ids of all
// ranks' experts; backward takes the "topk_ids" of its forward call again. Status bits go to the
// group's word instead of a tensor "status". Calls have the errors of other plans' calls. Also
// MOEJIT_ERROR_INVALID_STATE: backward comes before any forward; or the group is destroyed, was
// left by a rank, or is in a call of another thread.
MOEJIT_API moejit_error_code moejit_plan_prepare_in_group(moejit_plan* plan, moejit_engine* engine,
                                                          moejit_group* group);

// Opens 1 to 8 simulated GPUs that reach each other's memory, and tells the memory of each, of
// `memory_bytes` bytes. Kernels run when somebody waits for a device, so make the calls of all
// ranks first. The memory lives as long as one of the devices. `seed` decides every order.
MOEJIT_API moejit_error_code moejit_device_open_simulator_group(size_t ranks, int64_t memory_bytes,
                                                                uint64_t seed,
                                                                moejit_device** devices,
                                                                void** memory);

#ifdef __cplusplus
}
#endif

// NOLINTEND
