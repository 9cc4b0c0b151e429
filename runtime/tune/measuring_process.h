// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"
#include "runtime/tune/measurer.h"
#include "runtime/tune/measuring_messages.h"

#include <functional>
#include <memory>
#include <sys/types.h>

namespace moejit::tune {

class DeviceMeasurer;

// Measures in a child process, which may crash or hang: it then is ended, and the next open()
// starts another one. This process must have no other threads and must not have opened a GPU, of
// which nothing works in a child.
class MeasuringProcess final : public Measurer {
 public:
  // Opens the device and collects the problems, in the child.
  using Start = std::function<Result<std::unique_ptr<DeviceMeasurer>>()>;

  // A version may take `limit_seconds` to be made and to run once; a timed block that much more
  // than its versions should take.
  MeasuringProcess(Start start, double limit_seconds);
  ~MeasuringProcess() override;
  MeasuringProcess(const MeasuringProcess&) = delete;
  MeasuringProcess& operator=(const MeasuringProcess&) = delete;

  // Starts the child, unless there is one. Errors: those of `start`, and kInternal if there is no
  // process to be had.
  Result<MeasuredDevice> device();

  Result<void> prefetch() override;
  Result<void> compile(std::size_t problem) override;
  Result<void> open(std::size_t problem) override;
  Result<int64_t> make(int32_t candidate) override;
  Result<double> heat(double seconds, double most_seconds) override;
  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t launches) override;
  Result<void> open_step(std::size_t layer) override;
  Result<TimedBlocks> time_step(std::span<const StepChoice> tuned, int64_t launches) override;
  std::optional<Fault> loss() const override { return loss_; }
  bool is_usable() const override { return is_usable_; }

 private:
  Result<void> start_child();
  // Sends a request, to a new child if there is none, and returns its answer.
  Result<MeasureReply> ask(const MeasureRequest& request, double limit_seconds);
  // Asks for the times of so many blocks.
  Result<TimedBlocks> ask_times(const MeasureRequest& request, std::size_t blocks,
                                double more_seconds);
  Result<MeasureReply> exchange(const MeasureRequest& request, double limit_seconds);
  // Ends the child and returns the error of the call that lost it.
  tl::unexpected<Error> lose(Fault fault, double limit_seconds);
  // Waits for the child's end, which it may be made to, and returns how it ended.
  std::string end_child(bool is_killed);

  Start start_;
  double limit_seconds_;
  pid_t child_ = 0;        // 0: there is none
  FileDescriptor socket_;  // to the child
  std::string received_;   // behind the last line
  MeasuredDevice device_;
  double launch_us_ = 0.0;  // of what is open, with the usual choices
  std::optional<Fault> loss_;
  bool is_usable_ = true;
};

}  // namespace moejit::tune
