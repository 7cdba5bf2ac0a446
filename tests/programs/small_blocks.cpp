// SPDX-License-Identifier: Apache-2.0
// Allocates, checks and frees many small blocks in a random order, as a caching allocator does in its first
// seconds.
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  unsigned rounds = 2000;
  unsigned live = 256;
  std::size_t largest = 4 << 20;
  std::uint64_t seed = 1;
};

struct Block {
  Buffer buffer;
  std::uint64_t steps;
};

void run(const Options& options) {
  start();
  Kernels kernels;
  std::mt19937_64 random(options.seed);
  std::vector<Block> blocks;
  auto retire = [&](std::size_t index) {
    if (!blocks[index].buffer.verify(blocks[index].steps, nullptr)) fail("a block lost its contents");
    blocks[index].buffer.free();
    std::swap(blocks[index], blocks.back());
    blocks.pop_back();
  };
  for (unsigned round = 0; round < options.rounds; ++round) {
    if (blocks.size() == options.live) retire(random() % blocks.size());
    // Sizes range from 1/32768 of the largest size to the largest size; each power of two is equally likely.
    std::size_t size = options.largest >> (random() % 16);
    blocks.push_back({Buffer(kernels, std::max<std::size_t>(size, 8), random()), 0});
    Block& chosen = blocks[random() % blocks.size()];
    chosen.buffer.step(chosen.steps++, nullptr);
  }
  while (!blocks.empty()) retire(blocks.size() - 1);
  std::printf("small_blocks: %u blocks came and went, all verified\n", options.rounds);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Allocates and frees many small blocks and verifies each.");
  Options options;
  app.add_option("--rounds", options.rounds, "blocks to allocate").positive();
  app.add_option("--live", options.live, "blocks alive at once").positive();
  app.add_option("--largest", options.largest, "bytes of the largest block").positive();
  app.add_option("--seed", options.seed, "seed of sizes and order");
  app.parse(argc, argv);
  run(options);
  return 0;
}
