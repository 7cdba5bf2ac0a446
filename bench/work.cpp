// SPDX-License-Identifier: Apache-2.0
// A program with deterministic work for bench/compare. It uses the driver API, and so runs on the simulated
// GPU and on machines without PyTorch. work_torch.py has most of the options, and the same output. A GPU step
// changes all of the memory (kind inference: reads all of it), and then runs a kernel that spins. A CPU step
// only sleeps.
//
// The last line on stdout is a JSON object: its times are seconds of CLOCK_MONOTONIC.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  std::string kind = "mix";
  double gib = 1;
  std::uint64_t block_mib = 64;
  std::uint64_t gpu_steps = 10;
  std::uint64_t cpu_steps = 0;
  std::string order = "gpu-cpu";
  std::uint64_t cells = 0;
  double pause_ms = 1000;
  double step_ms = 20;
  double cpu_step_ms = 20;
  bool verify = false;
  bool wait = false;
};

void add_options(CommandLine& app, Options& options) {
  app.add_option("--kind", options.kind, "kind of work").one_of({"mix", "inference", "interactive", "hog"});
  app.add_option("--gib", options.gib, "GiB of device memory to work on").positive();
  app.add_option("--block-mib", options.block_mib, "MiB in each allocation").positive();
  app.add_option("--gpu-steps", options.gpu_steps,
                 "number of steps on the GPU (kind interactive: in each cell)");
  app.add_option("--cpu-steps", options.cpu_steps, "number of steps on the CPU");
  app.add_option("--order", options.order, "order of the steps").one_of({"gpu-cpu", "cpu-gpu"});
  app.add_option("--cells", options.cells, "kind interactive: number of bursts");
  app.add_option("--pause-ms", options.pause_ms, "kind interactive: time from each burst to the next")
      .not_negative();
  app.add_option("--step-ms", options.step_ms, "duration of a step on the GPU").not_negative();
  app.add_option("--cpu-step-ms", options.cpu_step_ms, "duration of a step on the CPU").not_negative();
  app.add_flag("--verify", options.verify, "verify every byte after the end");
  app.add_flag("--wait", options.wait,
               "print 'ready' when the context exists, and begin after a line on stdin");
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_ms(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

struct Phase {
  const char* where;
  std::uint64_t steps;  // 0 for the set-up
  double seconds;
};

struct Cell {
  double launch;  // time in seconds, just before the first launch
  double start;   // time in seconds, at the end of the first kernel
  double end;
};

// The program's device memory, in blocks. The last word of the first block holds checksums.
class Work {
 public:
  Work(const Options& options, const Kernels& kernels) : options_(options), kernels_(kernels) {
    const std::size_t block = options.block_mib << 20;
    for (std::size_t left = bytes(); left > 0; left -= std::min(left, block)) {
      const std::size_t size = std::min(left, block);
      CUdeviceptr memory = 0;
      check(cuMemAlloc(&memory, size), "cuMemAlloc");
      if (sum_ == 0) sum_ = memory + size - 8;
      buffers_.emplace_back(kernels, memory, memory + size - 8 == sum_ ? size - 8 : size,
                            buffers_.size() + 1);
      buffers_.back().fill(nullptr);
    }
    check(cuMemsetD8(sum_, 0, 8), "cuMemsetD8");
    step();
    synchronize();
  }

  std::size_t bytes() const { return static_cast<std::size_t>(options_.gib * (1 << 27)) * 8; }

  void step() {
    if (reads())
      add_checksum();
    else
      for (Buffer& buffer : buffers_) buffer.step(steps_, nullptr);
    auto spin = static_cast<std::uint64_t>(options_.step_ms * 1e6);
    if (spin > 0) launch(kernels_["spin"], 1, nullptr, {&spin});
    ++steps_;
  }

  // Runs `count` steps. Synchronizes after every `every` steps, and at the end.
  void steps(std::uint64_t count, std::uint64_t every) {
    for (std::uint64_t i = 1; i <= count; ++i) {
      step();
      if (i % every == 0) synchronize();
    }
    synchronize();
  }

  Cell cell() {
    Cell cell{now(), 0, 0};
    launch(kernels_["empty"], 1, nullptr, {});
    synchronize();
    cell.start = now();
    steps(options_.gpu_steps, options_.gpu_steps);
    cell.end = now();
    return cell;
  }

  // Returns the checksum; for an inference, the sum of the checksums of all steps.
  std::uint64_t result() {
    if (!reads()) add_checksum();
    std::uint64_t value = 0;
    check(cuMemcpyDtoH(&value, sum_, 8), "cuMemcpyDtoH");
    return value;
  }

  bool right() const {
    return std::all_of(buffers_.begin(), buffers_.end(),
                       [&](const Buffer& buffer) { return buffer.verify(reads() ? 0 : steps_, nullptr); });
  }

 private:
  static void synchronize() { check(cuCtxSynchronize(), "cuCtxSynchronize"); }
  bool reads() const { return options_.kind == "inference"; }
  void add_checksum() {
    std::uint64_t first = 0;
    for (const Buffer& buffer : buffers_) {
      std::uint64_t words = buffer.bytes() / 8;
      CUdeviceptr memory = buffer.memory();
      launch(kernels_["pattern_checksum"], words, nullptr, {&memory, &words, &sum_, &first});
    }
  }

  const Options& options_;
  const Kernels& kernels_;
  std::vector<Buffer> buffers_;
  CUdeviceptr sum_ = 0;
  std::uint64_t steps_ = 0;
};

void print(const Options& options, double begin, double end, std::size_t bytes, std::uint64_t result,
           const std::vector<Phase>& phases, const std::vector<Cell>& cells) {
  std::printf(
      R"({"kind": "%s", "pid": %d, "begin": %.6f, "end": %.6f, "bytes": %zu, "result": "%016llx", "phases": [)",
      options.kind.c_str(), getpid(), begin, end, bytes, static_cast<unsigned long long>(result));
  const char* separator = "";
  for (const Phase& phase : phases) {
    std::printf(R"(%s{"where": "%s", "steps": %llu, "seconds": %.6f})", separator, phase.where,
                static_cast<unsigned long long>(phase.steps), phase.seconds);
    separator = ", ";
  }
  std::printf(R"(], "cells": [)");
  separator = "";
  for (const Cell& cell : cells) {
    std::printf(R"(%s{"launch": %.6f, "start": %.6f, "end": %.6f})", separator, cell.launch, cell.start,
                cell.end);
    separator = ", ";
  }
  std::printf("]}\n");
}

void run(const Options& options) {
  start();
  Kernels kernels;
  if (options.wait) {
    std::cout << "ready" << std::endl;
    std::string line;
    if (!std::getline(std::cin, line)) fail("stdin ended before the line to begin with");
  }

  std::vector<Phase> phases;
  std::vector<Cell> cells;
  const double begin = now();
  auto timed = [&](const char* where, std::uint64_t steps, auto&& work) {
    const double from = now();
    work();
    phases.push_back({where, steps, now() - from});
  };

  auto cpu = [&] {
    if (options.cpu_steps == 0) return;
    timed("cpu", options.cpu_steps, [&] {
      for (std::uint64_t i = 0; i < options.cpu_steps; ++i) sleep_ms(options.cpu_step_ms);
    });
  };
  if (options.order == "cpu-gpu") cpu();
  const double setup = now();
  Work work(options, kernels);
  phases.push_back({"gpu", 0, now() - setup});
  std::uint64_t result = 0;
  if (options.kind == "interactive") {
    for (std::uint64_t i = 0; i < options.cells; ++i) {
      timed("cpu", 1, [&] { sleep_ms(options.pause_ms); });
      timed("gpu", options.gpu_steps, [&] { cells.push_back(work.cell()); });
    }
    result = work.result();
  } else {
    timed("gpu", options.gpu_steps, [&] {
      work.steps(options.gpu_steps, options.kind == "hog" ? 16 : 1);
      result = work.result();
    });
  }
  if (options.order == "gpu-cpu") cpu();
  const double end = now();

  if (options.verify && !work.right()) fail("the device memory is not what the kernels made of it");
  print(options, begin, end, work.bytes(), result, phases, cells);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Does work on the GPU and on the CPU, and prints its duration and result.");
  Options options;
  add_options(app, options);
  app.parse(argc, argv);
  run(options);
  return 0;
}
