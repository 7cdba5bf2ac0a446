// SPDX-License-Identifier: Apache-2.0
// sharedgpu gres: prints the lines of slurm.conf and gres.conf that make all GPUs of this host shared.

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "config/host_name.h"
#include "config/node_gpus.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

constexpr std::chrono::seconds kPatience{30};

int show_gres(const std::string& config, bool json) {
  Settings settings;
  if (!load_settings(config, settings)) return 2;
  std::map<std::string, std::vector<NodeGpu>> types;
  const NodeGpus found = find_node_gpus(kPatience);
  if (found.timed_out)
    complain("NVIDIA's driver did not list its GPUs within " + std::to_string(kPatience.count()) +
             " s; their models are not known");
  for (const NodeGpu& gpu : found.list) types[short_gres_type(gpu.model)].push_back(gpu);
  if (types.empty()) {
    complain("no GPU found in /proc/driver/nvidia/gpus or /dev");
    return 1;
  }
  const std::uint64_t units = found.list.size() * settings.units_per_gpu;
  if (units > kMostUnitsPerNode) {
    complain("UnitsPerGpu=" + std::to_string(settings.units_per_gpu) + " times the GPUs (" +
             std::to_string(found.list.size()) + ") makes " + std::to_string(units) +
             " units; Slurm can number " + std::to_string(kMostUnitsPerNode) + " at most on a node");
    return 1;
  }
  std::string gres;
  std::string lines;
  for (const auto& [type, gpus] : types) {
    std::string files;
    for (const NodeGpu& gpu : gpus) files += (files.empty() ? "" : ",") + std::to_string(gpu.minor);
    gres += (gres.empty() ? "" : ",") + std::string("sharedgpu:") + (type.empty() ? "" : type + ":") +
            std::to_string(gpus.size() * settings.units_per_gpu);
    lines += "NodeName=" + host_name() + " Name=sharedgpu" + (type.empty() ? "" : " Type=" + type) +
             " File=/dev/nvidia[" + files + "]\n";
  }
  if (json) {
    nlohmann::ordered_json each = nlohmann::ordered_json::array();
    for (const std::string_view line : split(lines, '\n'))
      if (!line.empty()) each.push_back(line);
    std::cout << nlohmann::ordered_json{{"node", host_name()}, {"gres", gres}, {"gres_conf", each}}.dump(2)
              << "\n";
    return 0;
  }
  std::cout << "# slurm.conf\nNodeName=" << host_name() << " Gres=" << gres
            << "\n# gres.conf (not needed where all GPUs are shared and their models are as here)\n"
            << lines;
  return 0;
}

}  // namespace

void add_gres(CLI::App& app, int& status) {
  struct Arguments {
    std::string config;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("gres", "Show the lines for slurm.conf and gres.conf");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_flag("--json", arguments->json, "As JSON; see docs/json.md");
  command->callback([arguments, &status] { status = show_gres(arguments->config, arguments->json); });
}

}  // namespace sharedgpu::cli
