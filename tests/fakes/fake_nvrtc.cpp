// SPDX-License-Identifier: Apache-2.0
// A stand-in for NVRTC with its entry points, for MOEJIT_NVRTC: it "compiles" any source to a small
// cubin with one kernel, is as slow, faulty or deadly as fake_nvrtc.h says, and counts. What it
// makes is a function of the source, so that who mixes kernels up is found out.
#include "tests/fakes/fake_nvrtc.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using moejit::testing::FakeNvrtcControl;
using moejit::testing::MappedControl;

constexpr int kSuccess = 0;
constexpr int kCompilation = 6;
constexpr int kCancelled = 14;

struct Program {
  std::string entry;
  std::string source;
  std::string log;
  std::vector<char> cubin;
  int (*callback)(void*, void*) = nullptr;
  void* payload = nullptr;
};

FakeNvrtcControl& control() {
  static MappedControl& mapped = *new MappedControl([] {
    const char* const path = std::getenv("FAKE_NVRTC_CONTROL");  // NOLINT(concurrency-mt-unsafe)
    return std::string(path != nullptr ? path : "/dev/null/no-FAKE_NVRTC_CONTROL");
  }());
  return *mapped.operator->();
}

// An image of ELF sections, put one behind the other.
class Image {
 public:
  Image() : bytes_(sizeof(Elf64_Ehdr)), sections_(1), names_(1, '\0') {}

  void add(std::string_view name, uint32_t type, std::string_view contents) {
    Elf64_Shdr section{};
    section.sh_name = static_cast<uint32_t>(names_.size());
    section.sh_type = type;
    section.sh_offset = bytes_.size();
    section.sh_size = contents.size();
    sections_.push_back(section);
    names_.append(name).push_back('\0');
    bytes_.insert(bytes_.end(), contents.begin(), contents.end());
  }

  std::vector<char> finish() {
    add(".shstrtab", SHT_STRTAB, names_ + std::string(".shstrtab") + '\0');
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = 190;  // EM_CUDA
    header.e_shoff = bytes_.size();
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(sections_.size());
    header.e_shstrndx = static_cast<uint16_t>(sections_.size() - 1);
    std::memcpy(bytes_.data(), &header, sizeof(header));
    const auto* table = reinterpret_cast<const char*>(sections_.data());
    bytes_.insert(bytes_.end(), table, table + sections_.size() * sizeof(Elf64_Shdr));
    return bytes_;
  }

 private:
  std::vector<char> bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::string names_;
};

template <typename Record>
std::string_view bytes_of(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

// What the tests say of an entry's parameters; 0: nothing.
int64_t param_bytes_of(const std::string& entry) {
  for (const FakeNvrtcControl::Params& params : control().params)
    if (entry == params.entry.data()) return params.bytes;
  return 0;
}

std::vector<char> make_cubin(const Program& program, int64_t seed) {
  Image image;
  std::array<Elf64_Sym, 2> symbols{};
  symbols[1].st_name = 1;
  // One sized attribute of 8 bytes: 32 registers for symbol 1.
  struct {
    uint8_t format = 4, kind = 0x2f;
    uint16_t size = 8;
    uint32_t symbol = 1, value = 32;
  } const registers;
  const int64_t bytes = control().code_bytes;
  std::string code(static_cast<std::size_t>(bytes > 0 ? bytes : 1024), '\0');
  uint64_t state = std::hash<std::string>()(program.source) + static_cast<uint64_t>(seed);
  for (char& byte : code) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56U);
  }
  image.add(".strtab", SHT_STRTAB, '\0' + program.entry + '\0');
  image.add(".symtab", SHT_SYMTAB, bytes_of(symbols));
  image.add(".nv.info", SHT_PROGBITS, bytes_of(registers));
  if (const int64_t taken = param_bytes_of(program.entry); taken > 0) {
    // Of 12 bytes: the only parameter, number 0 at offset 0; its size are bits 18 to 31.
    struct {
      uint8_t format = 4, kind = 0x17;
      uint16_t bytes = 12;
      uint32_t index = 0;
      uint16_t ordinal = 0, offset = 0;
      uint32_t size;
    } const params{.size = static_cast<uint32_t>(taken) << 18U};
    image.add(".nv.info." + program.entry, SHT_PROGBITS, bytes_of(params));
  }
  image.add(".text." + program.entry, SHT_PROGBITS, code);
  return image.finish();
}

// Which of a test's kernels it is: "moejit_flight_17" is 17.
std::size_t number_of(const std::string& entry) {
  const std::size_t at = entry.find_last_not_of("0123456789") + 1;
  return at < entry.size() ? std::stoul(entry.substr(at)) % FakeNvrtcControl::kKernels : 0;
}

// Whether it was let to its end.
bool take_time(const Program& program) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::microseconds(control().microseconds);
  while (control().is_held != 0 || std::chrono::steady_clock::now() < end) {
    if (program.callback != nullptr && program.callback(program.payload, nullptr) == 1)
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return true;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}

FAKE const char* nvrtcGetErrorString(int result) {
  switch (result) {
    case 1: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case kCompilation: return "NVRTC_ERROR_COMPILATION";
    case 11: return "NVRTC_ERROR_INTERNAL_ERROR";
    case kCancelled: return "NVRTC_ERROR_CANCELLED";
    default: return "NVRTC_ERROR_OF_THE_FAKE";
  }
}

FAKE int nvrtcCreateProgram(Program** program, const char* source, const char* name, int,
                            const char* const*, const char* const*) {
  const std::string_view file = name;
  *program = new Program{.entry = std::string(file.substr(0, file.rfind(".cu"))),
                         .source = source,
                         .log = {},
                         .cubin = {}};
  return kSuccess;
}

FAKE int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}

FAKE int nvrtcSetFlowCallback(Program* program, int (*callback)(void*, void*), void* payload) {
  program->callback = callback;
  program->payload = payload;
  return kSuccess;
}

FAKE int nvrtcCompileProgram(Program* program, int, const char* const*) {
  FakeNvrtcControl& all = control();
  const std::size_t number = number_of(program->entry);
  const int64_t place = all.begun++;
  ++all.begun_of[number];
  if (place < static_cast<int64_t>(all.order.size()))
    all.order[static_cast<std::size_t>(place)] = static_cast<int64_t>(number);
  if (all.compiles_to_go > 0 && --all.compiles_to_go == 0) std::abort();
  const int64_t running = ++all.running;
  for (int64_t most = all.most_running; most < running;)
    if (all.most_running.compare_exchange_weak(most, running)) break;
  const bool is_through = take_time(*program);
  --all.running;
  if (!is_through) {
    ++all.cancelled;
    return kCancelled;
  }
  ++all.finished;
  if (all.result != kSuccess) {
    program->log = program->entry + ".cu(1): error: the fake was told so\n";
    return all.result;
  }
  program->cubin = make_cubin(*program, all.is_inconsistent != 0 ? place + 1 : 0);
  return kSuccess;
}

FAKE int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kSuccess;
}

FAKE int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

FAKE int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  *bytes = program->cubin.size();
  return kSuccess;
}

FAKE int nvrtcGetCUBIN(Program* program, char* cubin) {
  std::memcpy(cubin, program->cubin.data(), program->cubin.size());
  return kSuccess;
}
