// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/nvrtc_api.h"

#include "compiler/support/digest.h"
#include "compiler/support/dynamic_library.h"
#include "compiler/support/env.h"
#include "compiler/support/file.h"
#include "compiler/support/fork.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#ifndef MOEJIT_DEFAULT_NVRTC_DIRS
#define MOEJIT_DEFAULT_NVRTC_DIRS ""
#endif

namespace moejit::compiler {
namespace {

// 12.4 is the oldest version whose C++20 takes our headers and whose log tells spills.
constexpr int kOldestMajor = 12;
constexpr int kOldestMinor = 4;
constexpr std::array kSonames = {"libnvrtc.so.13", "libnvrtc.so.12"};

using Reason = std::string;

template <typename Function>
bool resolve(const DynamicLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  return function != nullptr;
}

bool resolve_all(const DynamicLibrary& library, NvrtcApi& api) {
  return resolve(library, "nvrtcCreateProgram", api.create_program) &&
         resolve(library, "nvrtcDestroyProgram", api.destroy_program) &&
         resolve(library, "nvrtcCompileProgram", api.compile_program) &&
         resolve(library, "nvrtcGetProgramLogSize", api.get_log_size) &&
         resolve(library, "nvrtcGetProgramLog", api.get_log) &&
         resolve(library, "nvrtcGetCUBINSize", api.get_cubin_size) &&
         resolve(library, "nvrtcGetCUBIN", api.get_cubin) &&
         resolve(library, "nvrtcGetErrorString", api.get_error_string);
}

// Returns the build id of a library, or the digest of its bytes if it has none.
std::string identity_of(const DynamicLibrary& library) {
  std::string build_id = library.build_id();
  if (!build_id.empty()) return build_id;
  const auto bytes = read_file(library.path());
  return bytes ? "sha256:" + sha256(*bytes).hex() : std::string{};
}

// Opens NVRTC's builtins. NVRTC opens them by soname only. If they lie beside it in a folder that
// the loader does not search, it finds them only because they are open already.
std::string open_builtins(const std::string& nvrtc_path, int major, int minor) {
  const std::string name = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  const auto beside = std::filesystem::path(nvrtc_path).parent_path() / name;
  auto library = DynamicLibrary::open(beside.string());
  if (!library) library = DynamicLibrary::open(name);
  return library ? identity_of(*library) : std::string{};
}

tl::expected<NvrtcApi, Reason> open_one(const std::string& name) {
  const auto library = DynamicLibrary::open(name);
  if (!library) return tl::make_unexpected(library.error());
  NvrtcApi api{};
  NvrtcResult (*version)(int*, int*) = nullptr;
  if (!resolve(*library, "nvrtcVersion", version) || version(&api.major, &api.minor) != 0) {
    return tl::make_unexpected(fmt::format("{}: not an NVRTC library", name));
  }
  if (!api.is_at_least(kOldestMajor, kOldestMinor)) {
    return tl::make_unexpected(fmt::format("{}: version {}.{}, wanted {}.{} or newer", name,
                                           api.major, api.minor, kOldestMajor, kOldestMinor));
  }
  if (!resolve_all(*library, api)) {
    return tl::make_unexpected(
        fmt::format("{}: lacks functions of NVRTC {}.{}", name, api.major, api.minor));
  }
  api.path = library->path();
  api.build_id = identity_of(*library);
  resolve(*library, "nvrtcSetFlowCallback", api.set_flow_callback);
  api.builtins_build_id = open_builtins(api.path, api.major, api.minor);
  return api;
}

void add_folders(std::string_view colon_separated, std::vector<std::string>& folders) {
  while (!colon_separated.empty()) {
    const std::size_t end = std::min(colon_separated.find(':'), colon_separated.size());
    if (end > 0) folders.emplace_back(colon_separated.substr(0, end));
    colon_separated.remove_prefix(std::min(end + 1, colon_separated.size()));
  }
}

// Returns paths and sonames to try, in order.
std::vector<std::string> candidates(const NvrtcSearch& search) {
  if (!search.library.empty()) return {search.library};
  std::vector<std::string> names;
  for (const std::string& folder : search.folders) {
    for (const char* soname : kSonames) {
      const auto path = std::filesystem::path(folder) / soname;
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) names.push_back(path.string());
    }
  }
  if (search.ask_loader) names.insert(names.end(), kSonames.begin(), kSonames.end());
  return names;
}

std::string places_of(const NvrtcSearch& search) {
  if (!search.library.empty())
    return fmt::format("{} = {}", name_of(Variable::kNvrtc), search.library);
  std::string places = fmt::format("{}", fmt::join(search.folders, ", "));
  if (search.ask_loader) places += places.empty() ? "the system's loader" : ", the system's loader";
  return places.empty() ? "no folders" : places;
}

}  // namespace

NvrtcSearch default_nvrtc_search() {
  NvrtcSearch search;
  search.library = environment(Variable::kNvrtc).value_or("");
  add_folders(MOEJIT_DEFAULT_NVRTC_DIRS, search.folders);
  for (const Variable variable : {Variable::kCudaHome, Variable::kCudaPath}) {
    if (const auto root = environment(variable)) {
      search.folders.push_back(*root + "/lib64");
      search.folders.push_back(*root + "/lib");
    }
  }
  search.folders.emplace_back("/usr/local/cuda/lib64");
  return search;
}

Result<NvrtcApi> open_nvrtc(const NvrtcSearch& search) {
  std::vector<Reason> reasons;
  for (const std::string& name : candidates(search)) {
    auto api = open_one(name);
    if (api) return *std::move(api);
    reasons.push_back(std::move(api).error());
  }
  return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
              fmt::format("no usable NVRTC: looked for {} in {}", fmt::join(kSonames, " and "),
                          places_of(search)),
              fmt::format("install CUDA {}.{} or newer, or the wheel nvidia-cuda-nvrtc, and set {} "
                          "to the library file",
                          kOldestMajor, kOldestMinor, name_of(Variable::kNvrtc)),
              fmt::format("{}", fmt::join(reasons, "\n")));
}

std::optional<NvrtcRelease> release_of_files(const NvrtcSearch& search) {
  namespace fs = std::filesystem;
  const std::vector<std::string> names = candidates(search);
  if (names.empty() || names.front().find('/') == std::string::npos) return std::nullopt;
  const fs::path library = names.front();
  const auto soname = std::ranges::find(kSonames, library.filename().string());
  if (soname == kSonames.end()) return std::nullopt;
  const std::string_view major =
      std::string_view(*soname).substr(std::string_view("libnvrtc.so.").size());
  const std::string prefix = fmt::format("libnvrtc-builtins.so.{}.", major);

  std::optional<NvrtcRelease> release;
  std::error_code error;
  for (auto file = fs::directory_iterator(library.parent_path(), error);
       !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    // Takes "13.0", but not "13.0.88", which a link of the first name would lead to.
    if (!name.starts_with(prefix) || name.find('.', prefix.size()) != std::string::npos) continue;
    if (release) return std::nullopt;
    release = NvrtcRelease{.builtins_build_id = build_id_of_file(file->path().string())};
    const auto number = [](std::string_view text, int& value) {
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
      return failed == std::errc{} && end == text.data() + text.size();
    };
    if (!number(major, release->major) || !number(name.substr(prefix.size()), release->minor))
      return std::nullopt;
  }
  if (!release || !release->is_at_least(kOldestMajor, kOldestMinor)) return std::nullopt;
  release->build_id = build_id_of_file(library.string());
  if (release->build_id.empty() || release->builtins_build_id.empty()) return std::nullopt;
  return release;
}

namespace {

// The facts that this process knows about its NVRTC.
struct Opened {
  std::optional<NvrtcRelease> known_release() {
    if (api != nullptr) return *api;
    if (!release) release = release_of_files(default_nvrtc_search());
    return release;
  }

  ForkMutex mutex;
  std::unique_ptr<const NvrtcApi> api;  // failures are not kept: the user may fix them
  std::optional<NvrtcRelease> release;  // as read from files
};
Opened& opened() {
  static Opened state;
  return state;
}

}  // namespace

Result<const NvrtcApi*> nvrtc() {
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  if (state.api == nullptr) {
    MOEJIT_TRY_ASSIGN(NvrtcApi api, open_nvrtc(default_nvrtc_search()));
    state.api = std::make_unique<const NvrtcApi>(std::move(api));
  }
  return state.api.get();
}

Result<NvrtcRelease> nvrtc_release() {
  {
    Opened& state = opened();
    const std::lock_guard lock(state.mutex);
    if (const auto release = state.known_release()) return *release;
  }
  MOEJIT_TRY_ASSIGN(const NvrtcApi* api, nvrtc());
  return *api;
}

bool is_nvrtc_release_at_hand() {
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  return state.known_release().has_value();
}

}  // namespace moejit::compiler
