// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/parser/hugging_face_figures.h"

namespace moejit::compiler {

// The activation of a configuration's experts: the function that its key names, in the formula of
// the family, with the limits that are given. Errors: kUnsupported for a function that is no
// formula here, and for keys that change the formula of a family that is not known.
Result<Activation> read_hugging_face_activation(const HuggingFaceSource& source,
                                                FigureReader& reader);

}  // namespace moejit::compiler
