// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// The commands on packs of kernels. Each has a record, which the command line fills
// (docs/cli.md), and the function that does it. Results go to the terminal's print().

struct PackCommand {
  std::string file;
  std::string keys;  // key ring; empty: MOEJIT_PACK_KEYS
  bool is_json = false;
};
Result<void> run_pack_ls(const PackCommand& command, Terminal& terminal);
Result<void> run_pack_verify(const PackCommand& command, Terminal& terminal);

struct PackSignCommand {
  std::string file;
  std::string key;     // private, PEM
  std::string output;  // empty: the file itself
  uint64_t serial = 0;
  std::string expires;  // "2027-12-31"; empty: never
  bool is_json = false;
};
Result<void> run_pack_sign(const PackSignCommand& command, Terminal& terminal);

struct PackMergeCommand {
  std::vector<std::string> inputs;  // packs and cache folders
  std::string output;
  std::string keys;
  bool is_json = false;
};
Result<void> run_pack_merge(const PackMergeCommand& command, Terminal& terminal);

struct PackExportCommand {
  std::string file;
  std::string output_dir;  // a cache folder
  std::string keys;
  bool is_json = false;
};
Result<void> run_pack_export(const PackExportCommand& command, Terminal& terminal);

}  // namespace moejit::cli
