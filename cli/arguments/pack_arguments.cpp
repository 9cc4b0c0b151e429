// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/add_command.h"
#include "cli/commands/pack_commands.h"

namespace moejit::cli {
namespace {

template <typename Command>
CLI::App* add_pack_command(CLI::App& pack, Command& command, const std::string& name) {
  CLI::App* sub = pack.get_subcommand(name);
  sub->add_flag("--json", command.is_json, "Print JSON");
  return sub;
}

constexpr const char* kKeysHelp =
    "Key ring with a key that signed it; default: MOEJIT_PACK_KEYS, else owner and mode count";

void add_pack_readers(CLI::App& pack, Action& action) {
  const auto add = [&](const std::string& name, const std::string& summary, auto* run) {
    const auto command = add_command<PackCommand>(
        pack, action, name, summary, "  moejit pack " + name + " kernels.moejitpack\n", run);
    CLI::App* sub = add_pack_command(pack, *command, name);
    sub->add_option("PACK", command->file, "Pack")->required();
    if (name == "verify") sub->add_option("--pack-keys,--keys", command->keys, kKeysHelp);
  };
  add("ls", "List what is in a pack, and who signed it", &run_pack_ls);
  add("verify", "Check every byte of a pack, and whether it is trusted", &run_pack_verify);

  const auto merge = add_command<PackMergeCommand>(
      pack, action, "merge", "Write the kernels of packs and cache folders into one pack",
      "  moejit pack merge a.moejitpack b.moejitpack --output both.moejitpack\n"
      "  moejit pack merge ~/.cache/moejit --output mine.moejitpack\n",
      run_pack_merge);
  CLI::App* sub = add_pack_command(pack, *merge, "merge");
  sub->add_option("INPUT", merge->inputs, "Packs and cache folders")->required();
  sub->add_option("-o,--output", merge->output, "Pack to write")->required()->check(&check_name);
  sub->add_option("--pack-keys,--keys", merge->keys, kKeysHelp);

  const auto to_folder = add_command<PackExportCommand>(
      pack, action, "export", "Write the kernels of a pack into a cache folder",
      "  moejit pack export kernels.moejitpack --output-dir kernels\n", run_pack_export);
  sub = add_pack_command(pack, *to_folder, "export");
  sub->add_option("PACK", to_folder->file, "Pack")->required();
  sub->add_option("--output-dir", to_folder->output_dir, "Cache folder, made if need be")
      ->required()
      ->check(&check_name);
  sub->add_option("--pack-keys,--keys", to_folder->keys, kKeysHelp);
}

}  // namespace

void add_pack(CLI::App& app, Action& action) {
  CLI::App* pack = app.add_subcommand("pack", "Look at packs of kernels, sign and merge them");
  pack->require_subcommand(1);
  pack->fallthrough();
  pack->footer(
      "Examples:\n  moejit pack ls kernels.moejitpack\n"
      "  moejit pack sign kernels.moejitpack --key private.pem\n");
  add_pack_readers(*pack, action);
  const auto command = add_command<PackSignCommand>(
      *pack, action, "sign", "Add a signature to a pack",
      "  openssl genpkey -algorithm ed25519 -out private.pem\n"
      "  openssl pkey -in private.pem -pubout -out public.pem\n"
      "  moejit pack sign kernels.moejitpack --key private.pem --serial 7 --expires 2027-12-31\n",
      run_pack_sign);
  CLI::App* sub = add_pack_command(*pack, *command, "sign");
  sub->add_option("PACK", command->file, "Pack")->required();
  sub->add_option("--key", command->key, "Private Ed25519 key, PEM")->required();
  sub->add_option("--serial", command->serial, "Number that a key ring may ask for at least")
      ->capture_default_str();
  sub->add_option("--expires", command->expires, "Last day in UTC on which it is good, 2027-12-31");
  sub->add_option("-o,--output", command->output, "Write to this file instead of into the pack")
      ->check(&check_name);
}

}  // namespace moejit::cli
