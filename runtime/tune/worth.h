// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>
#include <string>

namespace moejit::tune {

// An estimate of the time that a problem's kernel takes in a step: what it has to do at least, over
// what a Hopper GPU sustains. It decides in which order problems are measured, and nothing else.
struct Worth {
  double multiply_us = 0.0;  // of a launch: its multiply-adds, by the matrix units alone
  double memory_us = 0.0;    // of a launch: its least bytes, by the memory alone
  int64_t launches = 0;      // in a step, of all subjects that have the problem

  bool operator==(const Worth&) const = default;
};

// Returns the microseconds of a step: the larger term of a launch, times the launches.
double microseconds_of(const Worth& worth);

// Returns the worth of a kernel that is launched once in a step. Without `tokens` every bound of
// its calls is reached, else a call has so many tokens, of which this rank gets the mean share.
Worth worth_of(const compiler::KernelPlan& kernel);
Worth worth_of(const compiler::KernelPlan& kernel, int64_t tokens);

// Returns the worth of a problem that two subjects have: all launches of both, each with the mean
// terms of all.
Worth joined(const Worth& one, const Worth& other);

// Returns a share of the estimated time as "23 %", "4.2 %" or "under 0.1 %".
std::string share_text(double share);

}  // namespace moejit::tune
