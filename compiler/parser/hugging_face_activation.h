// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/parser/hugging_face_figures.h"

namespace moejit::compiler {

// Returns the activation of a configuration's experts: the function that its key names, in the
// formula of the family, with the given limits. Errors: kUnsupported for a function that has no
// formula here, and for keys that change the formula of an unknown family.
Result<Activation> read_hugging_face_activation(const HuggingFaceSource& source,
                                                FigureReader& reader);

}  // namespace moejit::compiler
