// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace moejit::compiler {

// NVRTC's C interface, as far as we use it. It is declared here because NVRTC is opened at run time
// and its header may be absent when we are built; the interface is stable.
struct NvrtcProgram;
using NvrtcResult = int;  // 0: success
inline constexpr NvrtcResult kNvrtcOutOfMemory = 1;
inline constexpr NvrtcResult kNvrtcCompilation = 6;  // the source is wrong
inline constexpr NvrtcResult kNvrtcBuiltinOperationFailure = 7;

// The facts about an NVRTC that decide the machine code it makes.
struct NvrtcRelease {
  int major = 0;
  int minor = 0;
  std::string build_id;           // GNU build ids, else SHA-256 of the file, "sha256:..."
  std::string builtins_build_id;  // of the library of device functions beside it

  bool is_at_least(int wanted_major, int wanted_minor) const {
    return major > wanted_major || (major == wanted_major && minor >= wanted_minor);
  }
  bool operator==(const NvrtcRelease&) const = default;
};

// NVRTC as found on this machine.
struct NvrtcApi : NvrtcRelease {
  NvrtcResult (*create_program)(NvrtcProgram** program, const char* source, const char* name,
                                int headers, const char* const* texts,
                                const char* const* include_names);
  NvrtcResult (*destroy_program)(NvrtcProgram** program);
  NvrtcResult (*compile_program)(NvrtcProgram* program, int options, const char* const* option);
  NvrtcResult (*get_log_size)(NvrtcProgram* program, std::size_t* bytes);
  NvrtcResult (*get_log)(NvrtcProgram* program, char* log);
  NvrtcResult (*get_cubin_size)(NvrtcProgram* program, std::size_t* bytes);
  NvrtcResult (*get_cubin)(NvrtcProgram* program, char* cubin);
  const char* (*get_error_string)(NvrtcResult result);
  // Null in versions that lack it. NVRTC calls the callback now and then, on the thread that
  // compiles; if it returns 1 the compile ends.
  NvrtcResult (*set_flow_callback)(NvrtcProgram* program, int (*callback)(void*, void*),
                                   void* payload);

  std::string path;  // of the library
};

// Where to look for NVRTC: `library` alone if it is set, else the folders in order, else what the
// system's loader finds.
struct NvrtcSearch {
  std::string library;
  std::vector<std::string> folders;
  bool ask_loader = true;
};

// Returns $MOEJIT_NVRTC, the folders known when we were built, $CUDA_HOME, $CUDA_PATH and
// /usr/local/cuda.
NvrtcSearch default_nvrtc_search();

// Opens the first NVRTC that is new enough. Error kCompilerMissing: what was tried, what was found.
Result<NvrtcApi> open_nvrtc(const NvrtcSearch& search);

// Returns the NVRTC of this process, which the first call that finds one opens; valid until the
// process ends.
Result<const NvrtcApi*> nvrtc();

// Returns the release of the first NVRTC that open_nvrtc() would try. It is read off the library's
// file and the name of the builtins beside it, and neither is opened. None if these do not say: the
// loader's search decides, the file has another name or no build id, or builtins are of several
// releases.
std::optional<NvrtcRelease> release_of_files(const NvrtcSearch& search);

// Returns the release of nvrtc(). If it is not open yet, it comes from release_of_files() if
// possible, else NVRTC is opened. A release read off files may change when NVRTC is opened, if that
// is another one.
Result<NvrtcRelease> nvrtc_release();
// Returns whether nvrtc_release() needs not open NVRTC.
bool is_nvrtc_release_at_hand();

}  // namespace moejit::compiler
