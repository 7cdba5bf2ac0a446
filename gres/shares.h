// SPDX-License-Identifier: GPL-2.0-or-later
// The mapping of units to this node's GPUs: the logic of the GRES plugin, without Slurm and without I/O.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu::gres {

struct Gpu {
  std::string file;
  std::string type;  // the model, as gres_type() writes it; empty if unknown
};

// A record merged from gres.conf and slurm.conf, as Slurm passes it to the plugin.
struct Record {
  std::string type;  // empty: untyped
  std::uint64_t units = 0;
  std::vector<std::string> files;  // the files that File= lists
};

// The units and GPUs of one record. Units are numbered over all records of the node, in order, as in
// Slurm's bitmap.
struct Share {
  std::string type;
  std::uint64_t first_unit = 0;
  std::uint64_t units = 0;
  std::vector<std::string>
      files;  // device files that jobs with a unit of this share may open; empty if no GPU was found
};

struct Shares {
  std::vector<Share> list;  // one per record
  std::vector<std::string> warnings;
  std::string refusal;  // if not empty, the reason why the node must not offer its units
};

// `records` are in Slurm's order, `found` are this node's GPUs, `taken` are the device files of other GRES.
//
// The GPUs of a type are the files that File= lists in the records of this type. Without File=, the GPUs of a
// type are those in `found` whose model name contains the type and that neither File= nor another GRES lists.
// If File= lists a GPU twice, or lists a GPU of another GRES, `refusal` is set.
Shares share_gpus(const std::vector<Record>& records, const std::vector<Gpu>& found,
                  const std::vector<std::string>& taken);

// Merges the shares of each type, since Slurm may have several records of one type. The log shows the result,
// and the SPANK plugin compares it with UnitsPerGpu=.
std::vector<Share> sum_by_type(const std::vector<Share>& shares);

// A GPU's device file, and the units whose jobs may open the file: `units` units, from number `first_unit`
// on.
struct Device {
  std::uint64_t first_unit = 0;
  std::uint64_t units = 0;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::string file;
};

// The units of one type. Units are numbered as in Share.
struct TypedUnits {
  std::uint64_t first_unit = 0;
  std::uint64_t units = 0;
  std::string type;  // not empty
};

// The node's units, as slurmd passes them to slurmstepd.
struct NodeUnits {
  std::vector<Device> devices;
  std::vector<TypedUnits> typed;  // has no entry for untyped units
};

// The data that slurmd sends to slurmstepd. The data is text, so that data from another plugin can be
// recognized.
std::string write_units(const NodeUnits& units);
// Returns false if write_units() did not write `text`.
bool read_units(std::string_view text, NodeUnits& units);
// `packed` is the unread rest of slurmd's buffer. Returns true if `packed` begins with a size of four bytes
// and the first line of a text that write_units() wrote.
bool begins_with_units(std::string_view packed);

}  // namespace sharedgpu::gres
