// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>
#include <string>

namespace moejit::tune {

// An estimate of the time that a problem's kernel takes in a step. It is the kernel's least work
// divided by what a Hopper GPU sustains. It decides in which order problems are measured, and
// nothing else.
struct Worth {
  double multiply_us = 0.0;  // of a launch: its multiply-adds, by the matrix units alone
  double memory_us = 0.0;    // of a launch: its least bytes, by the memory alone
  int64_t launches = 0;      // in a step, over all subjects that have the problem

  bool operator==(const Worth&) const = default;
};

// Returns the microseconds in a step: the larger of a launch's two times, times the launches.
double microseconds_of(const Worth& worth);

// Returns the worth of a kernel that is launched once in a step. Without `tokens`, calls reach all
// bounds of the plan. With `tokens`, a call has so many tokens, and this rank gets the mean share
// of their rows.
Worth worth_of(const compiler::KernelPlan& kernel);
Worth worth_of(const compiler::KernelPlan& kernel, int64_t tokens);

// Returns the worth of a problem that two subjects have. It has the launches of both; its times of
// a launch are the means over all launches.
Worth joined(const Worth& one, const Worth& other);

// Returns a share of the estimated time as "23 %", "4.2 %" or "under 0.1 %".
std::string share_text(double share);

}  // namespace moejit::tune
