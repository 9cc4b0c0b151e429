// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace moejit {

// A shared library opened at run time. It is never closed: NVRTC, the CUDA driver and loaded
// kernels leave threads and exit handlers behind that must stay callable.
class DynamicLibrary {
 public:
  // Opens a library. `name` is a path, or a soname that the loader searches for. The error is the
  // loader's sentence.
  static tl::expected<DynamicLibrary, std::string> open(const std::string& name);

  // Returns the address of a function, or null. Cast it to the function's type.
  void* symbol(const char* name) const;

  // Returns where the loader found it; empty if it does not say.
  std::string path() const;

  // Returns the GNU build id in hexadecimal; empty if the library has none.
  std::string build_id() const;

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

// Returns false for the path of a pipe, folder or device, at which the loader could wait for ever.
bool is_openable(const std::string& name);

// Returns the build id of a library's file, which is read and not opened as a library. Empty if it
// has none or is no 64-bit library.
std::string build_id_of_file(const std::string& path);

}  // namespace moejit
