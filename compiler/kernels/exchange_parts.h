// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/kernels/exchange.h"
#include "compiler/kernels/kernel_kind.h"
#include "moejit_device/params/exchange_params.h"

#include <string>

namespace moejit::compiler {

// What the modules of an exchange's kernels share.

// Lists the pointers of a record that has one for each rank, the pointers of its group, and its
// numbers.
#define MOEJIT_RANK_POINTERS(record, field, access)                                       \
  MOEJIT_POINTER(record, field[0], access), MOEJIT_POINTER(record, field[1], access),     \
      MOEJIT_POINTER(record, field[2], access), MOEJIT_POINTER(record, field[3], access), \
      MOEJIT_POINTER(record, field[4], access), MOEJIT_POINTER(record, field[5], access), \
      MOEJIT_POINTER(record, field[6], access), MOEJIT_POINTER(record, field[7], access)
#define MOEJIT_GROUP_POINTERS(record) \
  MOEJIT_POINTER(record, group.epoch, kReadWrite), MOEJIT_POINTER(record, group.status, kReadWrite)
#define MOEJIT_GROUP_NUMBERS(record) \
  MOEJIT_NUMBER(record, group.rank), MOEJIT_NUMBER(record, group.timeout_ns)

// Rank and time-out belong to a group: whoever plans for one sets them.
inline const KernelNumber kRankNumber{.role = "group.rank"};
inline const KernelNumber kTimeoutNumber{.role = "group.timeout_ns"};
inline const KernelNumber kTokensNumber{.role = "tokens", .dim = CallDim::kTokens};

// Returns how many CTAs a kernel has if `busy` CTAs have work. Where CTAs of some SMs end at once,
// it has as many as run at a time.
int64_t ctas_of(const ExchangeShape& exchange, int64_t busy);
// Returns R * T_max.
int64_t slots_of(const ExchangeShape& exchange);
// Returns how many ranks a token's row goes to if its experts differ and are drawn alike. The other
// function returns how many of these are not its own rank.
double ranks_of_token(const ExchangeShape& exchange);
double others_of_token(const ExchangeShape& exchange);
// Returns the bytes of the rows that so many tokens send to other ranks, a row to each of them.
int64_t sent_row_bytes(const ExchangeShape& exchange, int64_t tokens, int64_t row_bytes);
// Returns the bytes of a row with its compact scales; bf16 rows have none.
int64_t exchanged_row_bytes(DType dtype, int64_t columns);

// Returns the words of a spec's line that describe its shape.
std::string shape_text(const ExchangeShape& exchange);
// Return C++ names of element types.
std::string id_type(const ExchangeShape& exchange);
std::string prob_type(DType probs);
// Returns the part of an entry's name that describes the shape.
std::string tile_of(const ExchangeShape& exchange);
// Returns the text of a kernel that walks over chunks of tokens; its own parts are missing.
KernelText chunked_text(const ExchangeShape& exchange);
void add_columns(KernelText& text, int32_t columns);
// Adds kThreads, and kSegmentsInFlight unless `segments` is 0.
void add_threads(KernelText& text, int32_t threads, int32_t segments);

// Adds which SMs work and which of them send: the type Sms.
void add_sms(KernelText& text, const ExchangeShape& exchange, int32_t sender_sms);
// Adds the parts of a dispatch of rows and their permute, and its type. The own rows of so many
// chunks go through slots.
void add_dispatch(KernelText& text, const DispatchPermuteSpec& spec, int32_t slot_chunks,
                  std::string name);

// How rows of dtype `input` leave a rank: with the scales that they have, as they are, or quantized
// on the way.
struct SentRows {
  DType input, output;
  float epsilon;

  bool quantizes() const { return input == DType::kBF16 && output != DType::kBF16; }
  std::string types() const;    // part of an entry's name
  std::string summary() const;  // "bf16 rows, quantized to e4m3,"
};
// Adds the part that sends rows: its constants, and the type Send.
void add_send(KernelText& text, const SentRows& rows, int32_t rows_in_shared);
// Where rows begin in shared memory, behind the data of the walk over units.
inline constexpr int32_t kFirstSharedRow = 128;
// Returns the shared memory of a CTA with room for so many rows.
int32_t shared_rows_bytes(int32_t rows, DType dtype, int32_t columns, int32_t top_k);

}  // namespace moejit::compiler
