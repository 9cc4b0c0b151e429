// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/kernel_source.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// A compile-time choice of a kernel as the emitted text shows it: "constexpr type name = value;".
struct NamedConstant {
  std::string type;
  std::string name;
  std::string value;
  std::string comment;
};

NamedConstant integer_constant(std::string_view name, int32_t value, std::string_view comment);
NamedConstant bool_constant(std::string_view name, bool value, std::string_view comment);
// Makes a constant of a float's bits, for template parameters. NVRTC's C++20, g++ and clang++ do
// not all allow floats as template parameters.
NamedConstant float_bits_constant(std::string_view name, float value, std::string_view comment);

// A type composed of templates: "name<first, second>", broken into lines if it is long.
struct ComposedType {
  std::string name;  // name of the alias
  std::string template_name;
  std::vector<std::string> arguments;
};

// The parts of an emitted text that differ between kinds of kernels. The rest is equal for all.
struct KernelText {
  std::string types;                  // part of the entry's name: "bf16_e4m3", "swiglu_bf16_e4m3"
  std::string tile;                   // part of the entry's name: "128x128x128"
  std::string summary;                // what the kernel computes, in one line
  std::vector<std::string> includes;  // below moejit_device/, sorted
  std::string params;                 // name of the parameter record
  std::vector<NamedConstant> constants;
  std::string own_type = {};                       // a type that is written out, or empty
  std::vector<ComposedType> types_used;            // the last is the kernel
  std::string ctas_per_sm = "Kernel::kCtasPerSm";  // an expression, for the launch bounds
  std::string cluster_ctas = {};                   // likewise, of a cluster; empty: no clusters
  bool awaits_kernel_before = false;               // whether the entry does, ahead of the kernel
};

// Has the compiler leave registers for so many threads of an SM, instead of the skeleton's number;
// 0 changes nothing. The text must have a constant kThreads already.
void set_threads_per_sm(KernelText& text, int32_t threads_per_sm);

// Makes the entry wait for the kernel before, and let the kernel behind begin.
void make_overlap(KernelText& text);

// Returns the parts of a kernel's text that are specific to its spec.
KernelText kernel_text(const KernelSpec& spec);

// Returns the complete text of a kernel whose entry is called `entry`.
std::string render(const KernelPlan& kernel, const KernelText& text, std::string_view entry);

// Returns the text of a kernel: a comment with its spec, its includes, its constants by name, the
// kernel type, and the entry. The kernel type is composed of the templates. The text depends only
// on the operation's name and the spec. Error kInternal: the operation's name cannot be part of an
// identifier.
Result<KernelSource> emit(const KernelPlan& kernel, const Target& target);

// Return the text of the type Activation in an emitted kernel, see moejit_device/core/math.cuh. It
// has one operation a line, each rounded to fp32, and computes equal parts once.
std::string value_type_text(const Activation& activation);
std::string gradients_type_text(const Activation& activation);
std::string value_and_gradients_type_text(const Activation& activation);

// Returns an fp32 literal with a point or exponent: 7.0f, 1e-05f.
std::string float_literal(double number);

// Returns the text of a static member function of one float, which computes an expression over this
// parameter with one operation a line.
std::string function_text(std::string_view name, std::string_view parameter,
                          const Expression& result);

}  // namespace moejit::compiler
