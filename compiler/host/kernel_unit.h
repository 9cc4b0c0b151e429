// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace moejit::compiler {

// A unit is a list of kernels that the host compiler gets as one text. It saves time because most
// of a kernel's compile time goes into headers and into code that kernels of a kind share. Every
// text stays as it is, in a namespace of its own, and keeps its name and lines in messages.

// Most kernels of a unit: with more, little is left to share.
inline constexpr std::size_t kMostKernelsOfUnit = 27;

// Divides sources into units, given by indices of `sources`, the largest units first. Kernels of a
// unit have the same list of includes, so each sees the headers that it would see alone. Their
// entries differ. A source whose text has other directives is a unit of its own. Units are small
// enough that `jobs` compilers all have work. The result depends on nothing but the arguments.
std::vector<std::vector<std::size_t>> units_of(std::span<const KernelSource> sources,
                                               std::size_t jobs);

// Returns the text of a unit: the includes of the first source, then all texts.
std::string text_of_unit(std::span<const KernelSource> sources);

}  // namespace moejit::compiler
