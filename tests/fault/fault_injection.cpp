// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that makes the file system fail on purpose. It stands in for libc's
// functions on files, looks only at calls on FAULT_FOLDER and what is below it, and does to them
// what the environment says:
//
//   FAULT_FOLDER    absolute path; without it every call passes
//   FAULT_LOG       file that gets one line "<function> <path>" for each call that is looked at
//   FAULT_FUNCTION  function that fails, or * for any; with
//   FAULT_CALL      which call of it, from 1; 0: every one; and
//   FAULT_ERRNO     the errno it fails with, or
//   FAULT_KILL      1: the process is killed before the call, with the one that forked it; a write
//                   is done by half
//   FAULT_HIDE_MS   files younger than that are not found when opened for reading, as clients of
//                   network file systems remember that a name did not exist
//   FAULT_LIE       1: renames are done and reported as failed (ENOENT), as where a request was
//                   sent twice; 2: not done, and the file is gone
//   FAULT_MAGIC     hexadecimal f_type that fstatfs() tells
//   FAULT_RECORD    file that gets a line for each change that was made (recorded_changes.h)
//
// Nothing of C++ that could call such a function itself is used.
#include "tests/fault/recorded_changes.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace {

struct Settings {
  const char* folder = std::getenv("FAULT_FOLDER");
  const char* function = std::getenv("FAULT_FUNCTION");
  long call = number("FAULT_CALL");
  int error = static_cast<int>(number("FAULT_ERRNO"));
  bool kills = number("FAULT_KILL") != 0;
  long hide_ms = number("FAULT_HIDE_MS");
  long lies = number("FAULT_LIE");
  const char* magic = std::getenv("FAULT_MAGIC");
  int log = open_log();

  static long number(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  }
  static int open_log() {
    const char* path = std::getenv("FAULT_LOG");
    if (path == nullptr) return -1;
    return static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
};

const Settings& settings() {
  static const Settings value;
  return value;
}

template <typename Function>
Function* next(Function* /*type*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
// The libc function behind one of ours.
#define REAL(function)                              \
  ([] {                                             \
    static auto* real = next(&function, #function); \
    return real;                                    \
  }())

constexpr int kMostFiles = 4096;
std::atomic<bool> is_below[kMostFiles];  // by descriptor
char opened_as[kMostFiles][160];         // the same
std::atomic<long> calls{0};
const pid_t started = ::getpid();  // of a process that was forked: the one that forked it

bool is_watched(int fd) { return fd >= 0 && fd < kMostFiles && is_below[fd]; }

bool is_watched(int folder, const char* path) {
  if (settings().folder == nullptr || path == nullptr) return false;
  if (path[0] != '/') return is_watched(folder);
  const std::size_t length = std::strlen(settings().folder);
  return std::strncmp(path, settings().folder, length) == 0 &&
         (path[length] == '\0' || path[length] == '/');
}

void watch(int fd, bool below, const char* path = "") {
  if (fd < 0 || fd >= kMostFiles) return;
  is_below[fd] = below;
  std::snprintf(opened_as[fd], sizeof(opened_as[fd]), "%s", path);
}

void log_call(const char* function, const char* path) {
  if (settings().log < 0) return;
  char line[PATH_MAX + 64];
  const int length = std::snprintf(line, sizeof(line), "%s %s\n", function, path);
  ::syscall(SYS_write, settings().log, line, static_cast<std::size_t>(length));
}

// Whether this call is the one that fails; sets errno, or does not return.
bool fails(const char* function, const char* path) {
  const Settings& wanted = settings();
  log_call(function, path);
  if (wanted.function == nullptr) return false;
  if (std::strcmp(wanted.function, "*") != 0 && std::strcmp(wanted.function, function) != 0)
    return false;
  const long call = ++calls;
  if (wanted.call != 0 && wanted.call != call) return false;
  if (wanted.kills) {
    if (::getpid() != started) ::kill(started, SIGKILL);
    ::kill(::getpid(), SIGKILL);
  }
  if (wanted.error == 0) return false;
  errno = wanted.error;
  return true;
}

bool fails(const char* function, int fd) { return fails(function, opened_as[fd]); }

// For writes: half of the bytes are in the file when the process dies.
bool is_killed_next(const char* function) {
  const Settings& wanted = settings();
  return wanted.kills && wanted.function != nullptr &&
         (std::strcmp(wanted.function, "*") == 0 || std::strcmp(wanted.function, function) == 0) &&
         calls + 1 == wanted.call;
}

bool is_hidden(int folder, const char* path) {
  struct stat status {};
  if (settings().hide_ms == 0 ||
      ::syscall(SYS_newfstatat, folder, path, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(status.st_mode))
    return false;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const long age_ms = (now.tv_sec - status.st_ctim.tv_sec) * 1000 +
                      (now.tv_nsec - status.st_ctim.tv_nsec) / 1'000'000;
  return age_ms < settings().hide_ms;
}

}  // namespace

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  const bool watched = is_watched(folder, path);
  if (watched && fails("openat", path)) return -1;
  if (watched && (flags & O_ACCMODE) == O_RDONLY && is_hidden(folder, path)) {
    errno = ENOENT;
    return -1;
  }
  const bool is_new =
      watched && is_recorded() && (flags & O_CREAT) != 0 && inode_of(folder, path) == 0;
  const int fd = static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
  watch(fd, watched, path);
  if (watched && fd >= 0 && is_recorded()) {
    const KeepErrno keep;
    if (is_new) record("create\t%lu\t%s\n", inode_of(fd), AbsolutePath(folder, path).text);
    if ((flags & O_TRUNC) != 0 && !is_new) record("truncate\t%lu\n", inode_of(fd));
    if ((flags & O_ACCMODE) != O_RDONLY && !is_new) record("open\t%lu\n", inode_of(fd));
  }
  return fd;
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

int close(int fd) {
  const bool watched = is_watched(fd);
  const bool failed = watched && fails("close", fd);
  watch(fd, false);
  const int error = errno;
  const int result = static_cast<int>(::syscall(SYS_close, fd));
  if (!failed) return result;
  errno = error;  // the descriptor is gone all the same
  return -1;
}

ssize_t read(int fd, void* bytes, std::size_t size) {
  if (is_watched(fd) && fails("read", fd)) return -1;
  return ::syscall(SYS_read, fd, bytes, size);
}

ssize_t write(int fd, const void* bytes, std::size_t size) {
  if (is_watched(fd)) {
    if (is_killed_next("write")) ::syscall(SYS_write, fd, bytes, size / 2);
    if (fails("write", fd)) return -1;
  }
  const ssize_t written = ::syscall(SYS_write, fd, bytes, size);
  if (is_watched(fd)) record_write(fd, bytes, written);
  return written;
}

ssize_t pread(int fd, void* bytes, std::size_t size, off_t offset) {
  if (is_watched(fd) && fails("pread", fd)) return -1;
  return ::syscall(SYS_pread64, fd, bytes, size, offset);
}

int fsync(int fd) {
  if (is_watched(fd) && fails("fsync", fd)) return -1;
  const int result = REAL(fsync)(fd);
  if (result == 0 && is_watched(fd) && is_recorded()) record("sync\t%lu\n", inode_of(fd));
  return result;
}

int mkdirat(int folder, const char* path, mode_t mode) {
  const bool watched = is_watched(folder, path);
  if (watched && fails("mkdirat", path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_mkdirat, folder, path, mode));
  if (result == 0 && watched && is_recorded())
    record("mkdir\t%lu\t%s\n", inode_of(folder, path), AbsolutePath(folder, path).text);
  return result;
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  const bool watched = is_watched(to_folder, to);
  if (watched && fails("renameat", to)) return -1;
  if (watched && settings().lies == 2) ::syscall(SYS_unlinkat, from_folder, from, 0);
  const int result =
      static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
  if (result == 0 && watched && is_recorded())
    record("rename\t0\t%s\t%s\n", AbsolutePath(from_folder, from).text,
           AbsolutePath(to_folder, to).text);
  if (!watched || settings().lies == 0) return result;
  errno = ENOENT;
  return -1;
}
int rename(const char* from, const char* to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char* path, int flags) {
  const bool watched = is_watched(folder, path);
  if (watched && fails("unlinkat", path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
  if (result == 0 && watched && is_recorded())
    record("unlink\t0\t%s\n", AbsolutePath(folder, path).text);
  return result;
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

int chmod(const char* path, mode_t mode) {
  const bool watched = is_watched(AT_FDCWD, path);
  if (watched && fails("chmod", path)) return -1;
  if (watched && is_recorded()) record("chmod\t%lu\n", inode_of(AT_FDCWD, path));
  return static_cast<int>(::syscall(SYS_fchmodat, AT_FDCWD, path, mode));
}

int fstatat(int folder, const char* path, struct stat* status, int flags) {
  if (is_watched(folder, path) && fails("fstatat", path)) return -1;
  return static_cast<int>(::syscall(SYS_newfstatat, folder, path, status, flags));
}
int stat(const char* path, struct stat* status) { return fstatat(AT_FDCWD, path, status, 0); }

int fstat(int fd, struct stat* status) {
  if (is_watched(fd) && fails("fstat", fd)) return -1;
  return static_cast<int>(::syscall(SYS_fstat, fd, status));
}

int faccessat(int folder, const char* path, int mode, int flags) {
  if (is_watched(folder, path) && fails("faccessat", path)) return -1;
  return REAL(faccessat)(folder, path, mode, flags);
}

int futimens(int fd, const struct timespec* times) {
  if (is_watched(fd) && fails("futimens", fd)) return -1;
  if (is_watched(fd) && is_recorded()) record("times\t%lu\n", inode_of(fd));
  return REAL(futimens)(fd, times);
}

DIR* fdopendir(int fd) {
  if (is_watched(fd) && fails("fdopendir", fd)) return nullptr;
  return REAL(fdopendir)(fd);
}

struct dirent* readdir(DIR* stream) {
  const int fd = ::dirfd(stream);
  if (is_watched(fd) && fails("readdir", fd)) return nullptr;
  return REAL(readdir)(stream);
}

int closedir(DIR* stream) {
  watch(::dirfd(stream), false);
  return REAL(closedir)(stream);
}

int fstatfs(int fd, struct statfs* status) {
  if (is_watched(fd) && fails("fstatfs", fd)) return -1;
  const int result = REAL(fstatfs)(fd, status);
  if (result == 0 && is_watched(fd) && settings().magic != nullptr)
    status->f_type = std::strtol(settings().magic, nullptr, 16);
  return result;
}

// The system has a record of the same name.
#pragma GCC diagnostic ignored "-Wshadow"
int flock(int fd, int operation) {
  if (is_watched(fd) && fails("flock", fd)) return -1;
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

}  // extern "C"
