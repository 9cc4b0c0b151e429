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

// Measures in a child process, which may crash or hang. The child is then ended, and the next
// open() starts another one. This process must have no other threads and must not have opened a
// GPU, since a child cannot use a GPU that its parent opened.
class MeasuringProcess final : public Measurer {
 public:
  // A function that opens the device and collects the problems, in the child.
  using Start = std::function<Result<std::unique_ptr<DeviceMeasurer>>()>;

  // A version may take `limit_seconds` to be made and to run once. A timed block may take that much
  // longer than its versions should take.
  MeasuringProcess(Start start, double limit_seconds);
  ~MeasuringProcess() override;
  MeasuringProcess(const MeasuringProcess&) = delete;
  MeasuringProcess& operator=(const MeasuringProcess&) = delete;

  // Starts the child if there is none, and returns its device. Returns the errors of `start`, and
  // kInternal if no process can be started.
  Result<MeasuredDevice> device();

  Result<void> prefetch() override;
  Result<void> compile(std::size_t problem) override;
  Result<void> open(std::size_t problem) override;
  Result<int64_t> make(int32_t candidate) override;
  Result<double> heat(double seconds, double most_seconds) override;
  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t launches) override;
  std::optional<Fault> loss() const override { return loss_; }
  bool is_usable() const override { return is_usable_; }

 private:
  Result<void> start_child();
  // Sends a request to the child, which is started if there is none, and returns its answer.
  Result<MeasureReply> ask(const MeasureRequest& request, double limit_seconds);
  // Asks for the times of this many blocks.
  Result<TimedBlocks> ask_times(const MeasureRequest& request, std::size_t blocks,
                                double more_seconds);
  Result<MeasureReply> exchange(const MeasureRequest& request, double limit_seconds);
  // Ends the child and returns the error of the call that lost the child.
  tl::unexpected<Error> lose(Fault fault, double limit_seconds);
  // Waits until the child ends, killing it if `is_killed`. Returns how it ended.
  std::string end_child(bool is_killed);

  Start start_;
  double limit_seconds_;
  pid_t child_ = 0;        // 0: there is none
  FileDescriptor socket_;  // to the child
  std::string received_;   // bytes after the last line that was read
  MeasuredDevice device_;
  double launch_us_ = 0.0;  // time of a launch, with the usual choices, of what is open
  std::optional<Fault> loss_;
  bool is_usable_ = true;
};

}  // namespace moejit::tune
