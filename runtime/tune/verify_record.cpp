// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/verify_record.h"

#include "compiler/support/file.h"
#include "compiler/tuning.h"
#include "runtime/tune/decision/replay.h"
#include "runtime/tune/sweep.h"

#include <algorithm>
#include <fmt/core.h>
#include <span>
#include <sys/mman.h>
#include <utility>

namespace moejit::tune {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;

tl::unexpected<Error> refuse(std::string message, std::string hint) {
  return fail(Stage::kFile, ErrorCode::kInvalidValue, std::move(message), std::move(hint));
}

Result<void> check_gpu(const TuningRecord& record, const MeasuredDevice& device,
                       const std::string& path) {
  MOEJIT_TRY_ASSIGN(const compiler::GpuIdentity here,
                    compiler::parse_gpu_identity(device.gpu, "this GPU"));
  if (is_same_gpu(record.gpu, here)) return {};
  return refuse(fmt::format("{} is of the {}, and this is the {}", path, to_string(record.gpu),
                            to_string(here)),
                "a record is verified on a GPU that it is of");
}

// A journal in memory, for races that nobody else reads.
class ScratchJournal {
 public:
  ScratchJournal() : file_(::memfd_create("moejit-verify", MFD_CLOEXEC)) {}

  std::string path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }

 private:
  FileDescriptor file_;
};

// The entries of a record that are measured, as indices of their problems.
struct RoundSample {
  std::vector<std::size_t> problems;  // indices, ascending
  int64_t usual = 0, left_out = 0;    // as in Verification
};

const TuningEntry& entry_of(const TuningRecord& record, const TuneProblem& problem) {
  return *std::ranges::find(record.entries, problem.name, &TuningEntry::problem);
}

RoundSample sample_of(const TuningRecord& record, const std::vector<TuneProblem>& problems,
                      std::optional<int64_t> most) {
  RoundSample sample;
  for (const std::string& name : sampling_order(record)) {
    const auto problem = std::ranges::find(problems, name, &TuneProblem::name);
    if (problem == problems.end()) continue;
    if (entry_of(record, *problem).choices == problem->candidates.front())
      ++sample.usual;
    else if (most && std::ssize(sample.problems) >= *most)
      ++sample.left_out;
    else
      sample.problems.push_back(static_cast<std::size_t>(problem - problems.begin()));
  }
  std::ranges::sort(sample.problems);
  return sample;
}

// What a verification measures. Equal records, problems and targets have equal samples.
struct Verifying {
  const TuningRecord& record;
  const std::vector<TuneProblem>& problems;
  RoundSample sample;
  compiler::Target target;
};

// Returns the entry of problems[index] with what its race has found; null if it was not begun.
Result<VerifiedEntry> entry_with(const Verifying& verifying, std::size_t index, const Race* race,
                                 const std::string& failure) {
  const TuneProblem& problem = verifying.problems[index];
  const TuningEntry& entry = entry_of(verifying.record, problem);
  VerifiedEntry verified{.entry = entry, .subject = problem.subject};
  if (problem.candidates.size() == 1) {
    verified.verdict = Verdict::kNotOffered;
    verified.reason = "this version of moejit has no such kernel for the problem";
    return verified;
  }
  if (race == nullptr || !failure.empty()) {
    verified.reason = failure.empty() ? "interrupted" : failure;
    return verified;
  }
  MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel,
                    kernel_of(problem, problem.candidates.back()));
  const bool is_text_changed =
      !entry.text_digest.empty() && !is_measured_text(entry, kernel, verifying.target);
  return judged(std::move(verified), race->outcome(), is_text_changed);
}

// Measures the sample in this process, which may end at any time, and notes each entry.
Result<void> measure_sample(const Verifying& verifying, DeviceMeasurer& measurer,
                            const std::string& journal_path, const RaceSite& site,
                            TuneObserver& observer) {
  const std::vector<std::size_t>& sample = verifying.sample.problems;
  const auto first =
      site.losses.empty() ? sample.begin() : std::ranges::find(sample, site.losses.back().problem);
  for (auto at = first; at != sample.end() && !site.stops(); ++at) {
    const TuneProblem& problem = verifying.problems[*at];
    const auto done = at - sample.begin();
    observer.show_progress("entries", done, std::ssize(sample));
    std::optional<Race> race;
    std::string failure;
    if (problem.candidates.size() > 1) {
      MOEJIT_TRY(measurer.compile(*at));
      const Result<void> raced =
          race_problem(problem, *at, measurer.device(), journal_path, site, race);
      if (!raced && !measurer.is_usable()) site.watch.lose(raced.error().message);
      if (!raced && (!measurer.is_usable() || raced.error().stage == Stage::kFile)) return raced;
      if (!raced) failure = raced.error().message;
    }
    observer.end_progress();
    MOEJIT_TRY_ASSIGN(const VerifiedEntry verified,
                      entry_with(verifying, *at, race ? &*race : nullptr, failure));
    observer.note(fmt::format("{}: {} ({} of {})", problem.subject, verdict_text(verified),
                              done + 1, sample.size()));
  }
  return {};
}

// Opens the device in this process and measures there. Returns the errors of verify_record().
Result<void> measure(const TuningRecord& record, const std::string& name,
                     const TuneSubjects& subjects, const MeasureOptions& options,
                     std::optional<int64_t> most, const std::string& journal_path, Watch& watch,
                     std::span<const Loss> losses, TuneObserver& observer) {
  MOEJIT_TRY_ASSIGN(auto opened, open_measurer(options, subjects, observer));
  DeviceMeasurer& measurer = *opened.release();  // freeing it could wait for a GPU that hangs
  const MeasuredDevice device = measurer.device();
  MOEJIT_TRY(check_gpu(record, device, name));
  if (measurer.problems().empty())
    return refuse(fmt::format("none of the {} entries of {} is a problem of the layers and cases "
                              "that were named",
                              record.entries.size(), name),
                  "an entry names its problem, and running it takes a layer or case that has it: "
                  "name those that the record was measured with");
  if (losses.empty()) observer.note(device.description);
  MOEJIT_TRY_ASSIGN(JournalWriter journal, JournalWriter::open(journal_path, new_session(device)));
  watch.begin_measuring();
  const RaceSite site{.measurer = measurer,
                      .watch = watch,
                      .journal = journal,
                      .times = race_times(options),
                      .stops = [&] { return watch.stops(); },
                      .rules = verify_rules(),
                      .losses = losses};
  const Verifying verifying{.record = record,
                            .problems = measurer.problems(),
                            .sample = sample_of(record, measurer.problems(), most),
                            .target = device.target};
  return measure_sample(verifying, measurer, journal_path, site, observer);
}

// Returns the entries of the sample with what the journal has of their races. After a failure of
// the device, these are the entries whose races were begun.
Result<std::vector<VerifiedEntry>> entries_of(const Verifying& verifying,
                                              const std::string& journal_path, bool has_failed) {
  MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const auto races, replay(journal, verify_rules()));
  std::vector<VerifiedEntry> entries;
  for (const std::size_t index : verifying.sample.problems) {
    const TuneProblem& problem = verifying.problems[index];
    const auto race = std::ranges::find(races, problem.name, &ReplayedRace::problem);
    const bool has_race = race != races.end();
    if (has_failed && !has_race && problem.candidates.size() > 1) break;
    const bool has_failure = has_race && race->timed.faults.contains(0);
    MOEJIT_TRY_ASSIGN(entries.emplace_back(),
                      entry_with(verifying, index, has_race ? &race->race : nullptr,
                                 has_failure ? race->timed.faults.at(0) : ""));
  }
  return entries;
}

}  // namespace

Result<Verification> verify_record(const TuningRecord& record, const std::string& name,
                                   TuneSubjects subjects, const MeasureOptions& options,
                                   std::optional<int64_t> sample, TuneObserver& observer) {
  if (record.entries.empty())
    return refuse(fmt::format("{} has no entries, wanted one or more to verify", name),
                  "moejit tune measures a record");
  subjects.verified = record.entries;
  const ScratchJournal journal;
  Watch watch;
  const Result<void> measured = run_watched(
      watch,
      [&](std::span<const Loss> losses) {
        return measure(record, name, subjects, options, sample, journal.path(), watch, losses,
                       observer);
      },
      observer);
  if (!measured && !watch.measuring_since()) return tl::make_unexpected(measured.error());
  const std::string target = record.gpu.arch == "host" ? "sim" : "cuda:" + record.gpu.arch;
  MOEJIT_TRY_ASSIGN(const compiler::Target of_gpu, compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const auto problems, collect_problems(subjects, of_gpu));
  const Verifying verifying{.record = record,
                            .problems = problems,
                            .sample = sample_of(record, problems, sample),
                            .target = of_gpu};
  Verification verification{.gpu = record.gpu,
                            .usual = verifying.sample.usual,
                            .elsewhere = std::ssize(record.entries) - std::ssize(problems),
                            .left_out = verifying.sample.left_out};
  MOEJIT_TRY_ASSIGN(verification.entries, entries_of(verifying, journal.path(), !measured));
  if (!measured) verification.failure = measured.error();
  return verification;
}

}  // namespace moejit::tune
