// SPDX-License-Identifier: Apache-2.0
// Edits arbitrary text as the configuration of a container. For any text, the edit must end. If it fails, it
// must leave the configuration unchanged. A second edit must add nothing. The search for files that prevent a
// mount must end, too.
#include "arbiter/cli/oci_spec.h"

#include <nlohmann/json.hpp>

#include "arbiter/cli/mount_point.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  using nlohmann::json;
  const json before = json::parse(fuzz::text_of(data, size), nullptr, /*allow_exceptions=*/false);
  if (before.is_discarded()) return 0;
  if (const auto place = cli::mount_place(before, "/run/sharedgpu", "/b")) cli::obstacle_at(*place, before);
  const cli::JobReach job =
      cli::read_reach([](const char*) { return "/run/sharedgpu/sock"; }, "/lib/x/libsharedgpu.so");
  for (const cli::JobReach& each : {job, cli::JobReach{}})
    for (const cli::Stated stated : {cli::Stated::wins, cli::Stated::yields}) {
      json spec = before;
      if (!cli::add_job(spec, each, stated).empty()) {
        fuzz::require(spec == before, "a configuration that is not understood changes");
        continue;
      }
      json again = spec;
      fuzz::require(cli::add_job(again, each, stated).empty(), "the edited configuration is not understood");
      fuzz::require(again["process"]["env"].size() == spec["process"]["env"].size(),
                    "a second edit adds variables");
      fuzz::require(again["mounts"].size() == spec["mounts"].size(), "a second edit adds mounts");
    }
  return 0;
}
