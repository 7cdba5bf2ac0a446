// SPDX-License-Identifier: Apache-2.0
#include "bench/needs/traces.h"

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>

namespace sharedgpu::needs {

namespace {

constexpr unsigned kCycles = 40;
constexpr const char* kLearned = "learned";  // this line of a file ends the needs that do not count

using Needs = std::vector<Need>;

void append(Needs& needs, const Needs& more) { needs.insert(needs.end(), more.begin(), more.end()); }

// Handles with consecutive numbers from `first`.
class Handles {
 public:
  // `mixed`: sizes from 2 to 128 MiB, otherwise 64 MiB.
  Handles(std::uint64_t first, bool mixed) : first_(first), mixed_(mixed) {}
  Need operator[](std::uint64_t number) const {
    const std::uint64_t handle = first_ + number;
    return {handle << 21, mixed_ ? mebibytes(2 + handle * 2654435761 % 64 * 2) : mebibytes(64)};
  }

 private:
  std::uint64_t first_;
  bool mixed_;
};

Needs sweep(const Handles& handles, unsigned count) {
  Needs needs;
  for (unsigned i = 0; i < count; ++i) needs.push_back(handles[i]);
  return needs;
}

// The needs of the forward and the backward pass of a network. Layer i has weights (handle 5i), gradients (5i
// + 1), output (5i + 2), and two states of the optimizer. In the backward pass, the layers use two further
// handles in turn: each layer reads one and writes the other.
Needs passes(const Handles& handles, unsigned layers) {
  Needs needs;
  for (unsigned i = 0; i < layers; ++i) {
    if (i > 0) needs.push_back(handles[5 * i - 3]);
    needs.push_back(handles[5 * i]);
    needs.push_back(handles[5 * i + 2]);
  }
  for (unsigned i = layers; i-- > 0;) {
    needs.push_back(handles[5 * layers + i % 2]);
    needs.push_back(handles[5 * i + 2]);
    needs.push_back(handles[5 * i + 1]);
    needs.push_back(handles[5 * i]);
    needs.push_back(handles[5 * layers + (i + 1) % 2]);
  }
  return needs;
}

Needs optimizer(const Handles& handles, unsigned layers) {
  Needs needs;
  for (unsigned i = 0; i < layers; ++i)
    for (const unsigned part : {0u, 1u, 3u, 4u}) needs.push_back(handles[5 * i + part]);
  return needs;
}

Needs training(const Handles& handles, unsigned layers, unsigned micro_batches = 1) {
  Needs needs;
  for (unsigned i = 0; i < micro_batches; ++i) append(needs, passes(handles, layers));
  append(needs, optimizer(handles, layers));
  return needs;
}

Trace repeated(const std::string& name, const Needs& cycle, unsigned cycles) {
  Trace trace{name, {}, 2 * cycle.size()};
  for (unsigned i = 0; i < cycles; ++i) append(trace.needs, cycle);
  return trace;
}

// Omits, inserts, replaces or transposes `percent` percent of the needs.
Trace disturbed(const std::string& name, const Trace& trace, unsigned percent) {
  std::mt19937_64 random(percent);
  Trace result{name, {}, trace.learned};
  const auto any = [&] { return trace.needs[random() % trace.needs.size()]; };
  for (const Need& need : trace.needs) {
    const bool normal = random() % 100 >= percent;
    switch (normal ? 4 : random() % 4) {
      case 0:
        break;
      case 1:
        result.needs.push_back(any());
        result.needs.push_back(need);
        break;
      case 2:
        result.needs.push_back(any());
        break;
      case 3:
        result.needs.push_back(need);
        if (result.needs.size() > 1) std::swap(result.needs.back(), result.needs[result.needs.size() - 2]);
        break;
      default:
        result.needs.push_back(need);
    }
  }
  return result;
}

// A program that generates text. Each token needs all weights, and the cache of keys and values. Each group
// of ten layers has its own part of the cache. After every `tokens` tokens, one of these parts grows by a
// handle.
Trace decode(unsigned layers, unsigned tokens, unsigned growths) {
  const Handles weights(0, false);
  const unsigned groups = layers / 10;
  std::vector<Needs> caches(groups);
  for (unsigned i = 0; i < groups; ++i) caches[i].push_back(Handles(1000, false)[i]);
  Trace trace{"decode", {}, 0};
  for (unsigned grown = 0; grown < growths; ++grown) {
    for (unsigned token = 0; token < tokens; ++token) {
      for (unsigned i = 0; i < layers; ++i) {
        trace.needs.push_back(weights[i]);
        append(trace.needs, caches[i / 10]);
      }
      if (grown == 0 && token == 1) trace.learned = trace.needs.size();
    }
    caches[grown % groups].push_back(Handles(2000, false)[grown]);
  }
  return trace;
}

// Does the same as decode(), but the parts of the cache are adjacent, so the parts move when the cache grows.
Trace decode_moving(unsigned layers, unsigned tokens, unsigned growths) {
  const Handles weights(0, false);
  const Handles caches(1000, false);
  Trace trace{"decode, cache moves", {}, 0};
  for (unsigned grown = 1; grown <= growths; ++grown) {
    for (unsigned token = 0; token < tokens; ++token) {
      for (unsigned i = 0; i < layers; ++i) {
        trace.needs.push_back(weights[i]);
        trace.needs.push_back(caches[i * grown / layers]);
      }
      if (grown == 1 && token == 1) trace.learned = trace.needs.size();
    }
  }
  return trace;
}

Trace phases(unsigned cycles) {
  Trace trace = repeated("phase change", training(Handles(0, false), 30), cycles);
  for (unsigned i = 0; i < cycles; ++i) append(trace.needs, sweep(Handles(75, false), 150));
  return trace;
}

Trace alternating(const std::string& name, const std::vector<bool>& order) {
  const Needs first = training(Handles(0, false), 20);
  const Needs second = sweep(Handles(60, false), 120);
  Trace trace{name, {}, 0};
  unsigned seen[2] = {};
  for (const bool is_second : order) {
    append(trace.needs, is_second ? second : first);
    ++seen[is_second ? 1 : 0];
    if (trace.learned == 0 && seen[0] >= 2 && seen[1] >= 2) trace.learned = trace.needs.size();
  }
  return trace;
}

std::map<std::uint64_t, Bytes> sizes_of(const Trace& trace) {
  std::map<std::uint64_t, Bytes> sizes;
  for (const Need& need : trace.needs) sizes.emplace(need.handle, need.size);
  return sizes;
}

}  // namespace

Bytes footprint(const Trace& trace) {
  Bytes sum;
  for (const auto& [handle, size] : sizes_of(trace)) sum += size;
  return sum;
}

Bytes largest(const Trace& trace) {
  Bytes most;
  for (const Need& need : trace.needs) most = std::max(most, need.size);
  return most;
}

std::vector<Trace> programs() {
  const Handles equal(0, false);
  const Handles mixed(0, true);
  std::vector<bool> in_turn;
  for (unsigned i = 0; i < kCycles; ++i) in_turn.insert(in_turn.end(), {false, true});
  std::mt19937_64 random(7);
  std::vector<bool> at_random = {false, true, false, true};
  for (unsigned i = 0; i < 2 * kCycles; ++i) at_random.push_back(random() % 2 == 1);
  const Trace network = repeated("training", training(equal, 40), kCycles);
  return {repeated("sweep", sweep(equal, 200), kCycles),
          network,
          repeated("training, sizes differ", training(mixed, 40), kCycles),
          repeated("training, 4 micro-batches", training(equal, 40, 4), kCycles),
          disturbed("training, 1% noise", network, 1),
          disturbed("training, 5% noise", network, 5),
          alternating("two programs in turn", in_turn),
          alternating("two programs at random", at_random),
          decode(120, 4, 40),
          decode_moving(120, 4, 40),
          phases(kCycles)};
}

Trace random_cycles(std::uint64_t seed, unsigned handles, unsigned cycles, bool sizes) {
  std::mt19937_64 random(seed);
  const Handles all(0, sizes);
  Needs cycle;
  for (unsigned i = 0; i < handles; ++i)
    for (std::uint64_t times = 1 + random() % 3; times > 0; --times) cycle.push_back(all[i]);
  for (std::size_t i = cycle.size(); i > 1; --i) std::swap(cycle[i - 1], cycle[random() % i]);
  return repeated("random cycles", cycle, cycles);
}

Trace read(std::istream& in, const std::string& name) {
  Trace trace{name, {}, 0};
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.starts_with('#')) continue;
    if (line == kLearned) {
      trace.learned = trace.needs.size();
      continue;
    }
    std::istringstream words(line);
    Need need{};
    std::string rest;
    if (!(words >> need.handle >> need.size.count) || words >> rest || need.size.count == 0)
      throw std::runtime_error(name + ":" + std::to_string(number) + ": no handle and size: " + line);
    trace.needs.push_back(need);
  }
  return trace;
}

void write(std::ostream& out, const Trace& trace) {
  for (std::size_t i = 0; i < trace.needs.size(); ++i) {
    if (i != 0 && i == trace.learned) out << kLearned << '\n';
    out << trace.needs[i].handle << ' ' << trace.needs[i].size.count << '\n';
  }
}

}  // namespace sharedgpu::needs
