// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/verify_record.h"

#include "compiler/support/file.h"
#include "compiler/tuning.h"
#include "runtime/tune/measuring_process.h"
#include "runtime/tune/tune_session.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <string_view>
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

// Opens a journal for the races that nobody else reads: its file is gone when it is closed.
Result<JournalWriter> open_scratch_journal(const MeasuredDevice& device) {
  std::error_code ignored;
  std::string folder = std::filesystem::temp_directory_path(ignored) / "moejit-verify-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    return fail(Stage::kFile, ErrorCode::kFileWrite,
                fmt::format("cannot make the folder {}: {}", folder, errno_text(errno)),
                "TMPDIR names another folder for temporary files");
  auto journal = JournalWriter::open(folder + "/journal", new_session(device));
  std::filesystem::remove_all(folder, ignored);
  return journal;
}

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

// Races the two versions of a problem. Returns the error of a device that no longer works.
Result<VerifiedEntry> verify_entry(const TuningEntry& entry, const TuneProblem& problem,
                                   std::size_t index, const compiler::Target& target,
                                   const RaceSite& site) {
  VerifiedEntry verified{.entry = entry, .subject = problem.subject};
  if (site.stops()) {
    verified.reason = "interrupted";
    return verified;
  }
  if (problem.candidates.size() == 1) {
    verified.verdict = Verdict::kNotOffered;
    verified.reason = "this version of moejit has no such kernel for the problem";
    return verified;
  }
  MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel,
                    kernel_of(problem, problem.candidates.back()));
  const bool is_text_changed =
      !entry.text_digest.empty() && !is_measured_text(entry, kernel, target);
  MOEJIT_TRY(site.measurer.compile(index));
  Race race(2, verify_rules());
  const Result<void> raced = race_kernel(problem, index, site, race);
  if (raced) return judged(std::move(verified), race.outcome(), is_text_changed);
  if (!site.measurer.is_usable()) return tl::make_unexpected(raced.error());
  verified.reason = raced.error().message;
  return verified;
}

// Measures the sample until the device fails, and notes each entry.
Verification verify_sample(Verification so_far, const RoundSample& sample,
                           const TuningRecord& record, const std::vector<TuneProblem>& problems,
                           const compiler::Target& target, const RaceSite& site,
                           TuneObserver& observer) {
  for (const std::size_t index : sample.problems) {
    const TuneProblem& problem = problems[index];
    const auto done = std::ssize(so_far.entries), all = std::ssize(sample.problems);
    observer.show_progress("entries", done, all);
    Result<VerifiedEntry> verified =
        verify_entry(entry_of(record, problem), problem, index, target, site);
    observer.end_progress();
    if (!verified) {
      so_far.failure = std::move(verified.error());
      break;
    }
    observer.note(
        fmt::format("{}: {} ({} of {})", problem.subject, verdict_text(*verified), done + 1, all));
    so_far.entries.push_back(std::move(*verified));
  }
  return so_far;
}

}  // namespace

Result<Verification> verify_record(const TuningRecord& record, const std::string& name,
                                   TuneSubjects subjects, const MeasureOptions& options,
                                   std::optional<int64_t> sample, TuneObserver& observer) {
  if (record.entries.empty())
    return refuse(fmt::format("{} has no entries, wanted one or more to verify", name),
                  "moejit tune measures a record");
  subjects.verified = record.entries;
  MeasuringProcess measurer([&] { return open_measurer(options, subjects, observer); },
                            options.candidate_seconds);
  MOEJIT_TRY_ASSIGN(const MeasuredDevice device, measurer.device());
  MOEJIT_TRY(check_gpu(record, device, name));
  MOEJIT_TRY_ASSIGN(const auto problems, collect_problems(subjects, device.target));
  if (problems.empty())
    return refuse(fmt::format("none of the {} entries of {} is a problem of the layers and cases "
                              "that were named",
                              record.entries.size(), name),
                  "an entry names its problem, and running it takes a layer or case that has it: "
                  "name those that the record was measured with");
  observer.note(device.description);
  MOEJIT_TRY_ASSIGN(JournalWriter journal, open_scratch_journal(device));
  observer.begin();
  const RaceSite site{
      .measurer = measurer, .journal = journal, .times = race_times(options), .stops = [&] {
        return observer.stops();
      }};
  const RoundSample measured = sample_of(record, problems, sample);
  Verification verification{.gpu = record.gpu,
                            .usual = measured.usual,
                            .elsewhere = std::ssize(record.entries) - std::ssize(problems),
                            .left_out = measured.left_out};
  return verify_sample(std::move(verification), measured, record, problems, device.target, site,
                       observer);
}

}  // namespace moejit::tune
