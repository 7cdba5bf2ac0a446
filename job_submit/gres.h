// SPDX-License-Identifier: GPL-2.0-or-later
// Parses the counts of one GRES in the requests of jobs ("gres:gpu:1,gres/sharedgpu:a100:2") and in Gres= of
// nodes ("gpu:4(S:0-1),sharedgpu:8").
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu::job_submit {

// counts_of() returns this number for all larger counts. No node has this many units, and the product of this
// number with a size in MiB does not overflow.
constexpr std::uint64_t kLargestCount = 1u << 30;

// Limits of counts_of(), so that a hostile request costs slurmctld little time. In a text longer than
// kLongestText, it finds nothing. It finds at most kMostTypes types.
constexpr std::size_t kLongestText = 4096;
constexpr std::size_t kMostTypes = 64;

struct TypedCount {
  std::string_view type;  // a part of the parsed text; empty if any type is meant
  std::uint64_t count = 0;
};

// Compares two GRES types without regard to case, as Slurm does.
bool same_type(std::string_view a, std::string_view b);

// The counts of GRES `name` in `text`. An entry without a count means 1; the suffixes K, M, G, T, P mean
// powers of 1024. Ignores other GRES, other TRES and entries that are invalid in Slurm. Ignores the types
// after the first kMostTypes. "sharedgpu:3,sharedgpu:a100:2" requests three units, two of them of type a100:
// the count without a type becomes 1.
std::vector<TypedCount> counts_of(std::string_view text, std::string_view name);

std::uint64_t sum(const std::vector<TypedCount>& counts);

// Returns true if a node that offers `offer` has at least the counts of `request`.
bool has_all(const std::vector<TypedCount>& offer, const std::vector<TypedCount>& request);

}  // namespace sharedgpu::job_submit
