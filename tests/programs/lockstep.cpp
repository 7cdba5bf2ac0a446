// SPDX-License-Identifier: Apache-2.0
// Two processes whose streams wait for each other in every round, as the ranks of a collective do. Each
// process may submit the work of many rounds in advance. Each process verifies its memory, and checks that
// the other process reached every round. By default, both processes run on this host. With the option
// --words, each process gets its rank by an option and shares a file with the other process, which may run on
// another node.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  std::string bytes = "64MiB";
  unsigned rounds = 200;
  unsigned ahead = 16;
  double kernel_ms = 0;
  unsigned nap_ms = 0;
  unsigned nap_every = 10;
  std::string more;
  std::string words;
  unsigned rank = 0;
  // In a second rank that the first rank has started: the descriptor of the memory for Words. Otherwise -1.
  int shared = -1;
};

constexpr std::size_t kPage = 65536;  // the largest base page size of Linux
constexpr std::size_t kApart = 256;   // each rank's words lie in a separate cache line

// The words by which the ranks wait for each other, in shared memory that the GPU can read.
class Words {
 public:
  explicit Words(int descriptor) {
    host_ = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (host_ == MAP_FAILED) fail("cannot map the shared words");
    check(cuMemHostRegister(host_, kPage, CU_MEMHOSTREGISTER_DEVICEMAP), "cuMemHostRegister");
    check(cuMemHostGetDevicePointer(&device_, host_, 0), "cuMemHostGetDevicePointer");
  }
  CUdeviceptr of(unsigned rank) const { return device_ + rank * kApart; }
  void free() {
    check(cuMemHostUnregister(host_), "cuMemHostUnregister");
    munmap(host_, kPage);
  }

 private:
  void* host_ = nullptr;
  CUdeviceptr device_ = 0;
};

// Records which round the other rank was in when each round of this rank ended.
class Log {
 public:
  explicit Log(unsigned rounds) : rounds_(rounds) { check(cuMemAlloc(&memory_, rounds * 4ul), "cuMemAlloc"); }
  void note(unsigned round, CUdeviceptr word, CUstream stream) {
    check(cuMemcpyAsync(memory_ + round * 4ul, word, 4, stream), "cuMemcpyAsync");
  }
  void verify() const {
    std::vector<std::uint32_t> seen(rounds_);
    check(cuMemcpyDtoH(seen.data(), memory_, rounds_ * 4ul), "cuMemcpyDtoH");
    for (unsigned round = 0; round < rounds_; ++round)
      if (seen[round] != round + 1 && seen[round] != round + 2)
        fail("in round " + std::to_string(round + 1) + " the other was in round " +
             std::to_string(seen[round]));
  }
  void free() { check(cuMemFree(memory_), "cuMemFree"); }

 private:
  unsigned rounds_;
  CUdeviceptr memory_ = 0;
};

void work(const Options& options, unsigned rank, int descriptor) {
  start();
  Kernels kernels;
  Words words(descriptor);
  Buffer buffer(kernels, parse_size(options.bytes, 0), rank + 1);
  Log log(options.rounds);
  CUstream stream = nullptr;
  check(cuCtxSynchronize(), "cuCtxSynchronize");  // waits for the default stream, which fills the buffer
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  std::vector<CUevent> ends(options.ahead);
  for (CUevent& end : ends) check(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  std::vector<Buffer> more;
  const auto spin = static_cast<std::uint64_t>(options.kernel_ms * 1e6);

  for (unsigned round = 0; round < options.rounds; ++round) {
    CUevent& end = ends[round % options.ahead];
    if (round >= options.ahead) check(cuEventSynchronize(end), "cuEventSynchronize");
    // Each rank is slower than the other in some rounds.
    if (options.nap_ms > 0 && round % options.nap_every == rank * options.nap_every / 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(options.nap_ms));
    if (!options.more.empty() && round == options.rounds / 4 * (rank + 1))
      more.emplace_back(kernels, parse_size(options.more, 0), rank + 11);
    buffer.step(round, stream);
    if (spin > 0) launch(kernels["spin"], 1, stream, {&spin});
    check(cuStreamWriteValue32(stream, words.of(rank), round + 1, CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue32");
    check(cuStreamWaitValue32(stream, words.of(1 - rank), round + 1, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue32");
    log.note(round, words.of(1 - rank), stream);
    check(cuEventRecord(end, stream), "cuEventRecord");
  }
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  log.verify();
  bool right = buffer.verify(options.rounds, nullptr);
  for (Buffer& each : more) right = each.verify(0, nullptr) && right;
  if (!right) fail("the device memory is not what the kernels made of it");
  buffer.free();
  for (Buffer& each : more) each.free();
  log.free();
  words.free();
  std::printf("lockstep: rank %u: %u rounds, verified\n", rank, options.rounds);
}

// Opens the file that holds the Words: the file `name`, or a nameless file if `name` is empty.
int open_words(const std::string& name) {
  const int descriptor =
      name.empty() ? memfd_create("lockstep", 0) : open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0 || ftruncate(descriptor, kPage) != 0) fail("cannot make the shared words");
  return descriptor;
}

void run(const Options& options, int argc, char** argv) {
  if (options.shared >= 0) return work(options, 1, options.shared);
  const int descriptor = open_words(options.words);
  if (!options.words.empty()) return work(options, options.rank, descriptor);
  const pid_t other = fork();
  if (other == 0) {
    std::string number = std::to_string(descriptor);
    std::string option = "--shared";
    std::vector<char*> arguments(argv, argv + argc);
    arguments.insert(arguments.end(), {option.data(), number.data(), nullptr});
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  work(options, 0, descriptor);
  expect("the other rank", status_of(other));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Two processes whose streams wait for each other in every round.");
  Options options;
  app.add_option("--bytes", options.bytes, "memory of each process");
  app.add_option("--rounds", options.rounds, "how often they wait for each other").positive();
  app.add_option("--ahead", options.ahead, "how many rounds a process submits before it waits").positive();
  app.add_option("--kernel-ms", options.kernel_ms, "extra time on the GPU per round").not_negative();
  app.add_option("--nap-ms", options.nap_ms, "how long each process falls behind now and then");
  app.add_option("--nap-every", options.nap_every, "in how many rounds once").positive();
  app.add_option("--more", options.more, "memory that each process allocates and fills on the way");
  app.add_option("--words", options.words,
                 "a new file: this is one of the two, and shares the file with the other");
  app.add_option("--rank", options.rank, "with --words: which one").between(0, 1);
  app.add_option("--shared", options.shared, "").hidden();
  app.parse(argc, argv);
  return status_of([&] { run(options, argc, argv); });
}
