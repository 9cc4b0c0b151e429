// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace moejit::testing {

// A record of numbers in a file that several processes map; the file is made, all zero, or, where
// it is there, mapped as it is.
template <typename Record>
class MappedRecord {
 public:
  explicit MappedRecord(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Record)) != 0)
      throw std::runtime_error("no control file " + path);
    void* const memory =
        ::mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    record_ = static_cast<Record*>(memory);
  }
  ~MappedRecord() { ::munmap(record_, sizeof(Record)); }
  MappedRecord(const MappedRecord&) = delete;
  MappedRecord& operator=(const MappedRecord&) = delete;

  Record* operator->() const { return record_; }
  Record& operator*() const { return *record_; }

 private:
  Record* record_;
};

}  // namespace moejit::testing
