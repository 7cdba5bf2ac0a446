// SPDX-License-Identifier: Apache-2.0
// Two processes share device memory by cuIpcGetMemHandle and change it alternately. Each process also has
// memory of its own.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);  // cuda.h may lack version 2

namespace {

constexpr std::size_t kSmall = std::size_t{96} << 10;
constexpr std::uint64_t kLargeSeed = 11;
constexpr std::uint64_t kSmallSeed = 12;

struct Options {
  std::string bytes = "80MiB";
  std::string own = "48MiB";
  unsigned rounds = 4;
  unsigned gap_ms = 0;
  std::string how = "end";
  std::string wait_for;
  std::string open;
  bool print = false;
  bool second_gpu = false;
  int borrow = -1;  // descriptor of the connection between importer and exporter
};

// The first message from the exporter to the importer.
struct Offer {
  CUipcMemHandle large;
  CUipcMemHandle small;
};

std::string hexadecimal(const CUipcMemHandle& handle) {
  std::string text;
  for (char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

CUipcMemHandle parse(const std::string& text) {
  CUipcMemHandle handle = {};
  if (text.size() != 2 * sizeof handle.reserved)
    fail("a handle has " + std::to_string(2 * sizeof handle) + " digits");
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return handle;
}

template <class Value>
void put(int link, const Value& value) {
  if (send(link, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) fail("the other process is gone");
}

// Returns false if the other process has ended.
template <class Value>
bool get(int link, Value& value) {
  return recv(link, &value, sizeof value, MSG_WAITALL) == sizeof value;
}

void expect(CUresult result, CUresult wanted, const char* what) {
  if (result == wanted) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  fail(std::string(what) + ": " + (name == nullptr ? "?" : name));
}

CUdeviceptr open_handle(const CUipcMemHandle& handle) {
  CUdeviceptr memory = 0;
  check(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  return memory;
}

// The memory that both processes change, and memory that only this process uses.
struct Memory {
  Buffer large;
  Buffer small;
  Buffer own;
  std::uint64_t own_steps = 0;

  void step(std::uint64_t iteration, unsigned gap_ms) {
    large.step(iteration, nullptr);
    small.step(iteration, nullptr);
    own.step(own_steps++, nullptr);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    std::this_thread::sleep_for(std::chrono::milliseconds(gap_ms));
  }
  void verify(std::uint64_t steps) const {
    const bool right =
        large.verify(steps, nullptr) & small.verify(steps, nullptr) & own.verify(own_steps, nullptr);
    if (!right) fail("the device memory is not what the kernels made of it");
  }
};

CUipcMemHandle handle_of(CUdeviceptr memory) {
  CUipcMemHandle handle = {};
  check(cuIpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
  return handle;
}

void lend(const Options& options, int link, pid_t borrower) {
  start();
  Kernels kernels;
  Memory memory{.large = Buffer(kernels, parse_size(options.bytes, 0), kLargeSeed),
                .small = Buffer(kernels, kSmall, kSmallSeed),
                .own = Buffer(kernels, parse_size(options.own, 0), 1)};
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  int capable = 0;
  check(
      cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory.large.memory()),
      "cuPointerGetAttribute");
  if (capable != 1) fail("memory of cuMemAlloc is said to have no IPC");
  const Offer offer{.large = handle_of(memory.large.memory()), .small = handle_of(memory.small.memory())};
  const CUipcMemHandle again = handle_of(memory.large.memory());
  if (std::memcmp(&again, &offer.large, sizeof again) != 0) fail("another handle for the same memory");
  CUdeviceptr same = 0;
  expect(cuIpcOpenMemHandle(&same, again, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT,
         "opened in the exporting process");
  if (options.print) {
    std::printf("handle %s\n", hexadecimal(offer.large).c_str());
    std::fflush(stdout);
  }
  put(link, offer);

  std::uint64_t steps = 0;
  bool joined = true;
  for (unsigned round = 0; round < options.rounds; ++round) {
    memory.step(steps++, options.gap_ms);
    if (!joined) continue;
    put(link, steps);
    joined = get(link, steps);
    if (joined && options.how == "kill-lender") raise(SIGKILL);
    if (joined && options.how == "free-first") break;
    if (!joined && options.how != "kill-borrower") fail("the borrower is gone");
  }
  memory.verify(steps);
  if (joined && options.how != "free-first")
    put(link, std::uint64_t{0});  // from here on the importer may close the memory
  if (options.how == "end" && !get(link, steps)) fail("the borrower is gone");
  memory.large.free();
  memory.small.free();
  memory.own.free();
  if (options.how != "kill-borrower") put(link, std::uint64_t{0});  // this process has freed the memory
  int status = 0;
  waitpid(borrower, &status, 0);
  const bool as_wanted = options.how == "kill-borrower" ? WIFSIGNALED(status) : status == 0;
  if (!as_wanted) fail("the borrower did not end as it should");
  std::printf("ipc: the lender ended right\n");
}

// Opens the memory once in a context that is then destroyed, and once on another GPU. The other GPU verifies
// the memory before and after the context is destroyed.
void open_on_second_gpu(const CUipcMemHandle& handle, std::size_t bytes, std::uint64_t steps) {
  CUcontext before = nullptr;
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  check(cuCtxGetCurrent(&before), "cuCtxGetCurrent");
  check(cuCtxCreate_v2(&first, 0, 0), "cuCtxCreate");
  open_handle(handle);
  check(cuDevicePrimaryCtxRetain(&second, 1), "cuDevicePrimaryCtxRetain");
  use(second);
  const Kernels kernels;
  const Buffer there(kernels, open_handle(handle), bytes, kLargeSeed);
  if (!there.verify(steps, nullptr)) fail("another GPU sees something else");
  check(cuCtxDestroy(first), "cuCtxDestroy");
  use(second);
  if (!there.verify(steps, nullptr)) fail("another GPU no longer sees it");
  check(cuIpcCloseMemHandle(there.memory()), "cuIpcCloseMemHandle");
  expect(cuIpcCloseMemHandle(there.memory()), CUDA_ERROR_INVALID_VALUE, "closed once too often");
  use(before);
}

void borrow(const Options& options, int link) {
  start();
  Kernels kernels;
  Offer offer;
  if (!get(link, offer)) fail("the lender is gone");
  while (!options.wait_for.empty() && access(options.wait_for.c_str(), F_OK) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const CUdeviceptr large = open_handle(offer.large);
  const CUdeviceptr small = open_handle(offer.small);
  if (open_handle(offer.large) != large) fail("a handle that was opened twice has two addresses");
  check(cuIpcCloseMemHandle(large), "cuIpcCloseMemHandle");  // the memory was opened twice
  Memory memory{.large = Buffer(kernels, large, parse_size(options.bytes, 0), kLargeSeed),
                .small = Buffer(kernels, small, kSmall, kSmallSeed),
                .own = Buffer(kernels, parse_size(options.own, 0), 2)};

  std::uint64_t steps = 0;
  std::uint64_t told = 0;
  bool joined = true;
  while ((joined = get(link, told)) && told != 0) {
    steps = told;
    memory.verify(steps);
    if (options.how == "kill-borrower") raise(SIGKILL);
    memory.step(steps++, options.gap_ms);
    put(link, steps);
  }
  // The exporter may have ended or have freed the memory. The memory exists until this process closes it.
  for (unsigned round = 0; options.how != "end" && round < options.rounds; ++round)
    memory.step(steps++, options.gap_ms);
  memory.verify(steps);
  check(cuIpcCloseMemHandle(large), "cuIpcCloseMemHandle");
  check(cuIpcCloseMemHandle(small), "cuIpcCloseMemHandle");
  expect(cuIpcCloseMemHandle(large), CUDA_ERROR_INVALID_VALUE, "closed once too often");
  if (options.second_gpu) open_on_second_gpu(offer.large, parse_size(options.bytes, 0), steps);
  if (options.how == "end") {
    put(link, steps);
    joined = get(link, told);
  }
  CUdeviceptr stale = 0;
  if (cuIpcOpenMemHandle(&stale, offer.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS)
    fail("memory was opened that is no more");
  memory.own.free();
  std::printf("ipc: the borrower ended right%s\n", joined ? "" : ", after the lender");
}

// Tries to open the memory in a process outside the exporter's job, which must fail.
void try_to_open(const CUipcMemHandle& handle) {
  start();
  CUdeviceptr memory = 0;
  if (cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS)
    fail("memory of another job was opened");
  std::printf("ipc: refused\n");
}

void run(const Options& options, int argc, char** argv) {
  if (!options.open.empty()) return try_to_open(parse(options.open));
  if (options.borrow >= 0) return borrow(options, options.borrow);
  int links[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, links) != 0) fail("socketpair failed");
  pid_t child = fork();
  if (child == 0) {
    close(links[0]);
    std::string number = std::to_string(links[1]);
    std::string option = "--borrow";
    std::vector<char*> arguments(argv, argv + argc);
    arguments.insert(arguments.end(), {option.data(), number.data(), nullptr});
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  close(links[1]);
  lend(options, links[0], child);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Shares device memory between two processes.");
  Options options;
  app.add_option("--bytes", options.bytes, "memory to share");
  app.add_option("--own", options.own, "memory that each process has for itself");
  app.add_option("--rounds", options.rounds, "how often each process changes it");
  app.add_option("--gap-ms", options.gap_ms, "time without work after each change");
  app.add_option("--how", options.how, "how it ends")
      .one_of({"end", "kill-lender", "kill-borrower", "free-first"});
  app.add_option("--wait-for", options.wait_for,
                 "a file; it is opened by the other process when this exists");
  app.add_flag("--second-gpu", options.second_gpu, "open it on GPU 1 too, where it ends as it should");
  app.add_flag("--print", options.print, "print the handle");
  app.add_option("--open", options.open, "only try to open this handle, and expect an error");
  app.add_option("--borrow", options.borrow, "").hidden();
  app.parse(argc, argv);
  return status_of([&] { run(options, argc, argv); });
}
