// SPDX-License-Identifier: GPL-2.0-or-later
// Which units stand for which GPUs of this node: the GRES plugin's own thinking, without Slurm and without
// I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu::gres {

struct Gpu {
  std::string file;
  std::string type;  // as gres_type() writes it; empty where the model is not known
};

// A record of gres.conf and slurm.conf together, as Slurm hands it to the plugin.
struct Record {
  std::string type;  // empty: untyped
  std::uint64_t units = 0;
  std::vector<std::string> files;  // of File=
};

// What one record comes to. Units are numbered over all records of the node, in their order: Slurm's bitmap.
struct Share {
  std::string type;
  std::uint64_t first_unit = 0;
  std::uint64_t units = 0;
  std::vector<std::string> files;  // a unit of this share opens each of them; empty where no GPU was found
};

struct Shares {
  std::vector<Share> list;  // one a record
  std::vector<std::string> warnings;
  std::string refusal;  // not empty: the node must not offer its units, and why
};

// `records` in Slurm's order, `found` the GPUs of this node, `taken` the device files of other GRES.
//
// A type's GPUs are those of its File=; without File=, those found whose model has the type in its name and
// that no other record states. No GPU is offered twice.
Shares share_gpus(const std::vector<Record>& records, const std::vector<Gpu>& found,
                  const std::vector<std::string>& taken);

// The shares of each type as one, for those who tell them: Slurm may have several records of a type.
std::vector<Share> sum_by_type(const std::vector<Share>& shares);

// A GPU's device file, with all the units that open it.
struct Device {
  std::uint64_t first_unit = 0;
  std::uint64_t units = 0;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::string file;
};

// What slurmd sends to slurmstepd: text, so that one that is not ours can be told.
std::string write_devices(const std::vector<Device>& devices);
// False where it is none.
bool read_devices(std::string_view text, std::vector<Device>& devices);
// Whether what is left of slurmd's buffer, a size of four bytes and its text, begins with such a list.
bool begins_with_devices(std::string_view packed);

}  // namespace sharedgpu::gres
