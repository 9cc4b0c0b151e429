// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/parser/hugging_face_source.h"

namespace moejit::compiler {

// Returns a model's shared experts as slices of `intermediate` columns of w2; 0 experts: the model
// has none. Errors: kUnsupported if they cannot run in the layer, with the reason, and for families
// whose shared experts are not known.
Result<SharedExperts> read_hugging_face_shared(const HuggingFaceSource& source,
                                               int32_t intermediate);

}  // namespace moejit::compiler
