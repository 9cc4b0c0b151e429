// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/plan_text.h"

#include "runtime/bindings/graph/failure.h"

#include <string>

namespace moejit::graph {
namespace {

// Removes the first word and the space after it from the text, and returns the word.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = text.find(' ');
  const std::string_view word = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return word;
}

}  // namespace

PlanText read_plan_text(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string_view rest = text;
  const std::string_view mark = take_word(rest);
  PlanText read;
  read.version = take_word(rest);
  read.target = take_word(rest);
  read.digest = take_word(rest);
  if (rest.starts_with('@')) read.group = take_word(rest);
  read.json = rest;
  if (mark != "moejit" || read.json.empty())
    fail(MOEJIT_ERROR_INVALID_VALUE,
         "argument plan: it begins with \"" + std::string(text.substr(0, kShown)) +
             "\", wanted \"moejit VERSION TARGET DIGEST JSON\"",
         "make it with moejit.torch.layer_text(), operation_text() or moejit.jax.plan()");
  return read;
}

void check_is_current(const PlanText& text, std::string_view version, std::string_view digest) {
  if (text.version == version && text.digest == digest) return;
  fail(MOEJIT_ERROR_INVALID_VALUE,
       "the compiled graph is stale: it was made with moejit " + std::string(text.version) +
           " for the plan " + std::string(text.digest) + ", this is moejit " +
           std::string(version) + " with the plan " + std::string(digest),
       "compile or export it again; torch keeps compiled graphs in TORCHINDUCTOR_CACHE_DIR, jax in "
       "jax_compilation_cache_dir");
}

}  // namespace moejit::graph
