// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"
#include "compiler/support/error.h"
#include "compiler/support/json_document.h"
#include "compiler/target.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

struct KernelPlan;
struct KernelSource;

// Records of what was fastest on a GPU, and how plans use them (docs/tuning.md). Nothing here
// measures anything: the same description, target and records give the same plan on all machines.

// The facts that tell GPUs apart which run the same machine code at different speed. 0 stands for a
// number that is not known, which is taken for any.
struct GpuIdentity {
  std::string name;  // "NVIDIA H200"; for people, never compared
  std::string arch = "sm_90a";
  int64_t sm_count = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bus_bits = 0;
  int64_t memory_megahertz = 0;
  int64_t most_megahertz = 0;  // of the SMs
  int64_t power_limit_watts = 0;
  bool operator==(const GpuIdentity&) const = default;
};

// Returns whether what was measured on one of them holds for the other. Power limits are the same
// if they round to the same multiple of 25 W.
bool is_same_gpu(const GpuIdentity& one, const GpuIdentity& other);
// Returns whether what was measured on one of them is a hint for the other: both have the
// architecture and the number of SMs.
bool is_same_family(const GpuIdentity& one, const GpuIdentity& other);

// Return the facts as JSON in one line, and read them back. Errors: as of parse_tuning().
std::string gpu_to_json(const GpuIdentity& gpu);
Result<GpuIdentity> parse_gpu_identity(std::string_view json, std::string_view source_name);

// Returns for example "NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W)".
std::string to_string(const GpuIdentity& gpu);

// What was measured for one problem. Times are of one launch, medians in microseconds.
struct TuningEntry {
  std::string problem;  // KernelPlan::problem
  Choices choices;      // of the fastest candidate, or of the default if none beats it
  double microseconds = 0.0;
  double default_microseconds = 0.0;
  double ratio = 1.0;  // median of the rounds' quotients: chosen time by the default's
  double ratio_low = 1.0, ratio_high = 1.0;  // 95 % interval of the ratio
  int64_t rounds = 0;
  std::string objective = "hot";  // or "cool"
  std::string text_digest;  // measured_text_digest() of the fastest kernel when it was measured
  std::string session;      // names the run of the tuner that measured it
  std::string date;         // "2026-12-02"
  std::string version;      // of moejit
  std::vector<JsonMember> others;  // fields of other versions, kept as they are
};

// A file of entries that were measured on one GPU, one for each problem, sorted by it.
struct TuningRecord {
  GpuIdentity gpu;
  std::vector<TuningEntry> entries;
  std::vector<JsonMember> others;
};

// Most bytes of a record's text.
inline constexpr std::size_t kMaxTuningBytes = std::size_t{4} << 20;

// Reads the text of a record. Errors: as of parse_layer(), with the limit kMaxTuningBytes.
// kUnsupported if it is of another format; kInvalidValue for two entries of one problem. Leaves out
// the field "steps" of earlier versions, whose figures were of whole steps with these choices.
Result<TuningRecord> parse_tuning(std::string_view json, std::string_view source_name);
// Reads a file. Errors: as of parse_tuning(); kFileNotFound, kFileRead.
Result<TuningRecord> read_tuning(const std::string& path);

// Returns the record as JSON, a field a line, that parse_tuning() reads back to an equal record.
// Entries are sorted, so equal records give equal bytes.
std::string to_json(const TuningRecord& record);
// Returns the entry as JSON in one line.
std::string to_json(const TuningEntry& entry);

// Returns 32 hexadecimal digits over a kernel's text and the headers that it includes on its
// target. They change exactly when the kernel does. Error kInternal: a header that moejit does not
// have.
Result<std::string> text_digest(const KernelSource& source);

// Returns a record with the entries of both, and of two of a problem the better founded.
// Merging is commutative, associative and idempotent. Error kInvalidValue: they are of two GPUs.
Result<TuningRecord> merge(const TuningRecord& one, const TuningRecord& other);

// The records that plans are made with.
class Tuning {
 public:
  // Takes the records that hold for the GPU, or are hints for it. Without a GPU, as on a machine
  // that builds kernels for others, all records must be of one GPU, which plans are made for.
  // kInvalidValue names two that differ.
  static Result<Tuning> make(std::vector<TuningRecord> records,
                             const std::optional<GpuIdentity>& gpu = {});

  struct Found {
    const TuningEntry* entry = nullptr;
    const GpuIdentity* measured_on = nullptr;
    bool is_hint = false;  // measured on another GPU of the family
  };
  // Returns the entry of a problem: measured on this GPU, else a hint.
  std::optional<Found> find(std::string_view problem) const;

  // Returns the GPU that plans are made for.
  const GpuIdentity& gpu() const { return gpu_; }

 private:
  GpuIdentity gpu_;
  std::vector<TuningRecord> exact_;  // at most one
  std::vector<TuningRecord> hints_;
};

// Reads the records that a caller names by paths separated by ':', of which empty ones are skipped;
// without a list the records of MOEJIT_TUNING. Returns null if there are no paths. Nothing is
// looked for anywhere else. Errors: as of read_tuning() and Tuning::make().
Result<std::unique_ptr<const Tuning>> read_tunings(const std::optional<std::string>& paths,
                                                   const std::optional<GpuIdentity>& gpu = {});

// Returns the digest that an entry has of a kernel: text_digest() of its text without the name of
// its operation. Kernels of several operations may be one problem (`quantize` and `quantize_dy` of
// a layer). Errors: as of emit_kernel() and text_digest().
Result<std::string> measured_text_digest(const KernelPlan& kernel, const Target& target);

// Returns whether the entry was measured with the kernel's text; false for a text that cannot be
// had. Takes the digest of the text with the name of the operation as well, which entries of
// earlier versions have.
bool is_measured_text(const TuningEntry& entry, const KernelPlan& kernel, const Target& target);

}  // namespace moejit::compiler
